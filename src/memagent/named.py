"""Finds what a command names as `module:function`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError


def load_function(spec: str, what: str, kind: str = "function") -> Callable[..., Any]:
    """Imports `module:function`, or another callable such as a class, from the current folder too.

    Args:
        spec: such as `my_agent:agent` or `package.module:Class.method`.
        what: its purpose, for messages: `agent`, `reward`.
        kind: what it is, for messages.

    Raises:
        ConfigError: it has another form, the module can't be imported, or has no such function.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise ConfigError(
            f"the {what} {spec!r} doesn't name a {kind}: write 'module:{kind}', such as 'my_{what}:{what}' for "
            f"the {kind} {what} in my_{what}.py"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        # Left there for later imports by the module; last, so that it doesn't shadow installed packages.
        sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):  # not one that it imports
            raise ConfigError(
                f"the {what} {spec!r}: there is no module {module_name!r}, either installed or in the "
                f"current folder {folder!r}"
            ) from error
        problem = f"importing {module_name!r} failed: {error!r}"
        raise ConfigError(f"the {what} {spec!r}: {problem}") from error
    file = getattr(target, "__file__", None)
    for name in path.split("."):
        target = getattr(target, name, None)
    if not callable(target):
        raise ConfigError(f"the {what} {spec!r}: {module_name} ({file}) has no {kind} {path!r}")
    return target
