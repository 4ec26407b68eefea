from pathlib import Path

import pytest

from memagent_train.smoke.folder import lay_out


@pytest.fixture(scope="session")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the smoke training begins with, but for the length of the expert's work. Only to be read."""
    folder = tmp_path_factory.mktemp("smoke") / "new"
    lay_out(folder, seed=0, documents=10)
    return folder
