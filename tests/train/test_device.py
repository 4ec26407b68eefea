import pytest
import torch

from memagent_train.device import memory_for
from memagent_train.errors import OutOfMemory


def test_too_little_memory_is_told_with_its_remedy() -> None:
    with (
        pytest.raises(
            OutOfMemory,
            match=r"^a batch does not fit the memory: make it smaller\. torch says: .*allocate",
        ),
        memory_for("a batch", "make it smaller"),
    ):
        torch.empty(2**50)


def test_a_devices_too() -> None:
    with (
        pytest.raises(OutOfMemory, match="CUDA out of memory"),
        memory_for("a batch", "make it smaller"),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shape"), memory_for("a batch", "make it smaller"):
        torch.zeros(2).view(3)  # shape '[3]' is invalid
