"""A vLLM server as a benchmark sees it besides the chat: its version, its metrics, resetting its prefix cache."""

from __future__ import annotations

from collections.abc import Mapping

import httpx


class VLLM:
    """A server started with VLLM_SERVER_DEV_MODE=1.

    Args:
        base_url: up to `/v1`.
        client: pass one for frequent requests: otherwise each request spends 25 ms of this process on opening one.
    """

    def __init__(self, base_url: str, client: httpx.Client | None = None) -> None:
        self._root = base_url.rstrip("/").removesuffix("/v1")
        self._get = client.get if client else httpx.get

    def version(self) -> str:
        """Returns the server's version."""
        return str(self._get(f"{self._root}/version").json()["version"])

    def reset(self) -> None:
        """Empties the prefix cache."""
        httpx.post(f"{self._root}/reset_prefix_cache", timeout=60).raise_for_status()

    def metrics(self, names: Mapping[str, str]) -> dict[str, float]:
        """Returns the server's counters, under your own names; 0 for those it doesn't have."""
        lines = self._get(f"{self._root}/metrics").text.splitlines()
        return {
            name: sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))
            for name, metric in names.items()
        }
