"""Shows stored runs as a web page: `memagent show ID --html FILE`, or `--live` during a run."""
