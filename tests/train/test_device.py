import pytest
import torch

from memagent_train.algorithm import OptimizerSettings
from memagent_train.device import in_bf16, memory_for
from memagent_train.errors import OutOfMemory


def test_too_little_memory_is_told_with_its_remedy() -> None:
    with (
        pytest.raises(
            OutOfMemory,
            match=r"^a batch does not fit in memory: make it smaller\. torch says: .*allocate",
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


def test_bf16_is_for_gpus_unless_it_is_asked_for() -> None:
    assert not in_bf16(OptimizerSettings(), cpu=True)
    assert in_bf16(OptimizerSettings(precision="bf16"), cpu=True)
    assert not in_bf16(OptimizerSettings(precision="fp32"), cpu=False)
