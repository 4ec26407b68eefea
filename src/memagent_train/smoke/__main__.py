"""`python -m memagent_train.smoke`; see `command`."""

from memagent.cli import launch


def main() -> None:
    """Runs the command."""
    launch("memagent_train.smoke.command")


if __name__ == "__main__":
    main()
