"""`python -m memagent` is the `memagent` command."""

from memagent.cli import main

if __name__ == "__main__":
    main()
