"""`python -m memagent_train.smoke`; see `command`."""

from __future__ import annotations

from collections.abc import Callable

from memagent.cli import launch


def main() -> None:
    """Runs the command."""

    def load() -> Callable[[], object]:
        from memagent_train.smoke.command import app

        return app

    launch(load)


if __name__ == "__main__":
    main()
