"""Runs pytest in an engine's venv, which has none: with what it lacks from the folder of packages named first."""

import site
import sys


def main(packages: str, *arguments: str) -> int:
    # Last on the path, so that the engine's own versions win.
    site.addsitedir(packages)
    import pytest

    return pytest.main(list(arguments))


if __name__ == "__main__":  # the engine's processes import this module again
    sys.exit(main(*sys.argv[1:]))
