"""Declares torchvision's operators before torchvision is imported, for SGLang on a CPU.

SGLang imports torchvision, also for models of text only. The build of it that pip gives is made
for CUDA: beside the CPU build of torch its compiled half does not load, and the import then fails
at the operators that this half should have declared. Here they are declared without any code
behind them: calling one still fails, and for text nobody calls one.

Python imports a module of this name at the start of each process, so the engine's child processes
have it too. torch is imported no earlier than the engine does it.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class BeforeTorchvision:
    """A finder that finds nothing, and declares the operators when torchvision is asked for."""

    # torch forgets the operators together with this object.
    library: object = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Leaves the finding to the finders behind this one."""
        # The first part of torchvision to be imported, so that a mere look whether torchvision is
        # installed imports no torch.
        if name == "torchvision._meta_registrations" and self.library is None:
            from torch.library import Library  # pyright: ignore[reportMissingImports]

            library = Library("torchvision", "FRAGMENT")
            for schema in SCHEMAS:
                library.define(schema)
            self.library = library
        return None


sys.meta_path.insert(0, BeforeTorchvision())
