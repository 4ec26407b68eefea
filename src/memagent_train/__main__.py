"""`python -m memagent_train` is the `memagent-train` command: what `accelerate launch -m` takes."""

from memagent_train.cli import main

if __name__ == "__main__":
    main()
