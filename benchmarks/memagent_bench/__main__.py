"""`python -m memagent_bench` is the `memagent-bench` command."""

from memagent_bench.cli import main

if __name__ == "__main__":
    main()
