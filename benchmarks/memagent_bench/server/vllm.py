"""A vLLM server as a benchmark sees it, beside the chat: its version, its metrics, an empty prefix cache."""

from __future__ import annotations

from collections.abc import Mapping

import httpx


class VLLM:
    """A server that was started with VLLM_SERVER_DEV_MODE=1.

    Args:
        base_url: up to `/v1`.
        client: where the server is asked often: without one, each request takes 25 ms of this process to open another.
    """

    def __init__(self, base_url: str, client: httpx.Client | None = None) -> None:
        self._root = base_url.rstrip("/").removesuffix("/v1")
        self._get = client.get if client else httpx.get

    def version(self) -> str:
        """The server's."""
        return str(self._get(f"{self._root}/version").json()["version"])

    def reset(self) -> None:
        """Empties the prefix cache."""
        httpx.post(f"{self._root}/reset_prefix_cache", timeout=60).raise_for_status()

    def metrics(self, names: Mapping[str, str]) -> dict[str, float]:
        """The server's counters, under names of your own; 0 for those it does not have."""
        lines = self._get(f"{self._root}/metrics").text.splitlines()
        return {
            name: sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))
            for name, metric in names.items()
        }
