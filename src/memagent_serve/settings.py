"""Settings that an endpoint is started with."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator

from memagent import RunStore
from memagent.errors import ConfigError
from memagent.messages import Options

Overflow = Literal["read", "refuse"]
MIB = 2**20


def is_local(host: str) -> bool:
    """Returns whether only this machine can connect to a host; false for 0.0.0.0, which means all addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Settings(Options, arbitrary_types_allowed=True):
    """How an endpoint treats requests, and whose requests it accepts.

    Raises:
        ConfigError: a key is empty or can't be a header's value, or another value is wrong.
    """

    keys: tuple[str, ...] = Field(default=(), repr=False)
    """Any of these lets a request in (`Authorization: Bearer KEY`). Without keys, only this machine may connect."""
    overflow: Overflow = "read"
    """What to do with a request that exceeds the model's window: `read` it through a memory, or `refuse` it."""
    max_body: PositiveInt = 32 * MIB
    """Maximum bytes of a request's body, packed and unpacked."""
    max_requests: PositiveInt = 64
    """Maximum concurrent requests; further ones get a 429."""
    window: PositiveInt | None = None
    """The model's window in tokens, if it doesn't report it."""
    reading: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    """Arguments of `MemoryAgent`, other than model and store."""
    store: RunStore | Path | None = None
    """Where runs are kept; None: `RunStore.default_path()`."""

    @field_validator("keys", mode="before")  # pydantic's own errors would show the value
    @classmethod
    def _check(cls, keys: Iterable[object]) -> Iterable[object]:
        for key in (keys := (keys,) if isinstance(keys, str) else tuple(keys)):
            if not isinstance(key, str) or not re.fullmatch("[!-~]+", key):
                raise ConfigError(
                    f"a key of {len(str(key))} characters is empty or has a blank, a line end or a non-ASCII "
                    f"character; give another"
                )
        return keys
