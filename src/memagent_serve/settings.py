"""What an endpoint is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from memagent import RunStore
from memagent.errors import ConfigError

Overflow = Literal["read", "refuse"]
MIB = 2**20


def is_local(host: str) -> bool:
    """Whether only this machine can connect to a host; not so for 0.0.0.0, which is all addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an endpoint treats requests, and whose.

    Raises:
        ConfigError: a key is empty or can't be a header's value, or a limit is below 1.
    """

    keys: tuple[str, ...] = field(default=(), repr=False)
    """Any of them lets a request in (`Authorization: Bearer KEY`). Without keys only this machine may ask."""
    overflow: Overflow = "read"
    """What to do with a request that exceeds the model's window: `read` it through a memory, or `refuse` it."""
    max_body: int = 32 * MIB
    """Maximum bytes of a request's body, and of the same unpacked."""
    max_requests: int = 64
    """Requests at once; the next one gets a 429."""
    window: int | None = None
    """The model's window in tokens, if it doesn't report it."""
    reading: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `MemoryAgent`, other than model and store."""
    store: RunStore | Path | None = None
    """Where runs are kept; None is `RunStore.default_path()`."""

    def __post_init__(self) -> None:
        for key in self.keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                # The value is left out: it is a secret.
                raise ConfigError(
                    f"a key of {len(key)} characters is empty or has a blank, a line end or a non-ASCII character; "
                    f"give another"
                )
        for name in ("max_body", "max_requests"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)!r}")
