"""`python -m memagent_train` is the `memagent-train` command, for `accelerate launch -m`."""

from memagent_train.cli import main

if __name__ == "__main__":
    main()
