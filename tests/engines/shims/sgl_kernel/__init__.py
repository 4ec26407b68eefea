"""Stands in for the package of SGLang's compiled kernels, which has no build for CPUs on PyPI.

SGLang imports names from it on a CPU too. With plain float weights, torch's own attention and no
speculation it calls only one of them: the one below. Any other name can be imported, and raises
NotImplementedError when it is called.
"""

from collections.abc import Callable
from typing import Any, NoReturn


def assign_req_to_token_pool_cpu(
    req_pool_indices: Any,
    req_to_token: Any,
    start: Any,
    end: Any,
    out_cache_loc: Any,
    pool_len: int,
) -> None:
    """Writes the new cache slots of each request into its row of the table.

    Args:
        req_pool_indices: [requests], the row of each request.
        req_to_token: [rows, pool_len], the table; changed in place.
        start: [requests], the first column to write.
        end: [requests], the column after the last.
        out_cache_loc: [sum of end - start], the slots, request after request.
        pool_len: the number of columns.
    """
    taken = 0
    rows = zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True)
    for row, first, after in rows:
        if not 0 <= first <= after <= pool_len:
            raise ValueError(f"columns {first} to {after} of a table with {pool_len}")
        count = after - first
        req_to_token[row, first:after] = out_cache_loc[taken : taken + count]
        taken += count


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"the kernel {name!r} is not in this stand-in for sgl_kernel: choose options of SGLang "
            "that need no compiled kernel"
        )

    return missing
