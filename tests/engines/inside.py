"""Runs a module in an engine's venv, with what that lacks from the folder of packages named first."""

import runpy
import site
import sys


def main(packages: str, module: str, *arguments: str) -> None:
    # Last on the path, so that the engine's own versions win.
    site.addsitedir(packages)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":  # the engine's processes import this module again
    main(*sys.argv[1:])
