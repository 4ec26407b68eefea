"""`python -m memagent_smol`."""

from memagent_smol.command import app

if __name__ == "__main__":
    app(prog_name="memagent_smol")
