"""Stored runs as a web page: `memagent show ID --html FILE`, or `--live` while one is running."""
