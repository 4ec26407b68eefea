"""A full disk and a full memory are told as such, whatever library ran into them."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from memagent.errors import StoreFull
from memagent_train.errors import DiskFull, OutOfMemory
from memagent_train.runs.faults import translate_faults

WRITERS = {
    "python": "open(path, 'wb').write(b'x' * 100_000)",
    "torch": "import torch; torch.save(torch.zeros(100_000), path)",
    "safetensors": "import torch; from safetensors.torch import save_file\n"
    "  save_file({'a': torch.zeros(100_000)}, path)",
    "parquet": "import pyarrow as pa, pyarrow.parquet as pq, random\n"
    "  pq.write_table(pa.table({'a': [random.random() for _ in range(50_000)]}), path)",
}


@pytest.mark.parametrize("library", WRITERS)
def test_a_file_that_takes_no_more_is_a_full_disk(library: str, tmp_path: Path) -> None:
    code = (
        "import sys, signal\nfrom pathlib import Path\nfrom memagent_train.runs.faults import translate_faults\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\npath = sys.argv[1]\n"
        f"with translate_faults(Path('/the/run')):\n  {WRITERS[library]}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert "DiskFull: '/the/run' cannot be written, the disk is full" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        StoreFull("the run store is full"),
    ],
)
def test_errors_of_a_full_disk_name_the_folder_and_the_remedy(error: Exception) -> None:
    with (
        pytest.raises(DiskFull, match=r"'run'.*free some space there.*same command again"),
        translate_faults(Path("run")),
    ):
        raise error


def test_a_cause_is_looked_through() -> None:
    outer = RuntimeError("saving failed")
    outer.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFull), translate_faults(Path("run")):
        raise outer


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_a_full_memory_names_what_to_change(error: Exception) -> None:
    with pytest.raises(OutOfMemory, match=r"batch\.micro_batches"), translate_faults(Path("run")):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        RuntimeError("[enforce fail at inline_container.cc:145] . PytorchStreamReader failed"),
        ValueError("x"),
    ],
)
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translate_faults(Path("run")):
        raise error
    assert caught.value is error


def test_ours_are_left_as_they_are() -> None:
    ours = OutOfMemory("rollouts")
    with pytest.raises(OutOfMemory) as caught, translate_faults(Path("run")):
        raise ours
    assert caught.value is ours
