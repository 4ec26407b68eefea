"""Tools from Python functions."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, Unpack, cast, overload

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from memagent.errors import ConfigError, ToolError
from memagent.messages import ToolSpec
from memagent.texts import clip, map_texts, repair_surrogates
from memagent.threads import in_own_thread
from memagent.tools import processes
from memagent.tools.base import Tool, ToolContext
from memagent.tools.processes import ProcessCall, find, place_of
from memagent.tools.signature import Signature, summary

NOTHING = "(done, nothing returned)"
"""What a model gets for None: an empty result would look lost."""
BYTES = "bytes are not text"


class _Options(TypedDict, total=False):
    name: str | None
    description: str | None
    idempotent: bool
    read_only: bool
    timeout: float
    process: bool


@overload
def tool(function: Callable[..., Any], **options: Unpack[_Options]) -> Tool: ...
@overload
def tool(**options: Unpack[_Options]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    read_only: bool = False,
    timeout: float = 60.0,
    process: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a tool from a Python function; also a decorator, with or without arguments.

    The type hints become the JSON schema, and are used to check and convert a model's arguments: defaults,
    Enums, models, dates and everything else pydantic supports. Parameters are described by the docstring's `Args:`, or
    by `Annotated[str, Field(description=...)]`, which takes precedence. The model gets text verbatim, and other values
    as JSON. A parameter of type `ToolContext` gets the call's id and idempotency key, and is hidden from the model.

    An async function runs on the event loop, any other in a separate thread. A thread can't be killed: if such
    a function exceeds its timeout, the model is told so, but the function keeps running. One that may take
    long, or needs a whole core, belongs in a process, which is killed.

    Args:
        function: a function with a type hint for each parameter, without *args and **kwargs; None makes a decorator.
        name: the name that the model uses; by default the function's.
        description: the description for the model; by default the docstring's first paragraph.
        idempotent: running it twice has the same effect as running it once.
        read_only: it changes nothing, so several calls may run at once.
        timeout: seconds until a call is abandoned, including the wait for a free process.
        process: runs it in another process, which must be able to import it. That process keeps its globals between
            calls, and calls may go to different processes.

    Raises:
        ConfigError: the function can't be a tool; the message gives the reason and the remedy.
    """
    if function is None:
        return partial(
            tool,
            name=name,
            description=description,
            idempotent=idempotent,
            read_only=read_only,
            timeout=timeout,
            process=process,
        )
    _check(function)
    signature = Signature.of(function)
    run = FunctionRun(signature, place_of(function) if process else None)
    try:
        spec = ToolSpec(
            name=function.__name__ if name is None else name,
            description=summary(function) if description is None else description,
            parameters=signature.schema,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{function.__qualname__} cannot be a tool: its {first['loc'][0]} {clip(repr(first['input']), 200)} is "
            f"invalid ({first['msg']}); give name= with 1 to 64 letters, digits, '_' or '-'"
        ) from error
    return Tool(
        spec,
        run,
        idempotent=idempotent,
        read_only=read_only,
        timeout=timeout,
        takes_context=bool(signature.contexts),
    )


@dataclass(frozen=True)
class FunctionRun:
    """Runs a function: an async one on the event loop, any other in a thread, or in a process if it has a `place`."""

    signature: Signature
    place: str | None

    async def __call__(
        self, arguments: Mapping[str, Any], context: ToolContext | None = None
    ) -> str:
        """Awaits the function's result.

        Raises:
            ConfigError: importing the function gives a different one, so no process can run it.
        """
        call = self.signature.bind(arguments, context)
        if self.place is not None:
            if find(self.place) is not self.signature.function:
                raise ConfigError(
                    f"{self.place} is not the tool's function, so a process would run the wrong one; give "
                    f"each function a unique name"
                )
            process_call = ProcessCall(self.place, arguments, context=context)
            return await processes.tool_pool.run(process_call)
        if inspect.iscoroutinefunction(self.signature.function):
            return as_text(await call())

        def work() -> Any:
            value = call()
            return value if inspect.isawaitable(value) else as_text(value)

        result = await in_own_thread(work)
        # An async function wrapped by a sync one still returns an awaitable.
        return result if isinstance(result, str) else as_text(await result)


def as_text(value: Any) -> str:
    """Returns a function's result as shown to a model.

    Raises:
        ToolError: it has no JSON form.
    """
    if isinstance(value, str):
        return str.__str__(value)  # an enum's text, not its name
    if value is None:
        return NOTHING
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise _not_json(cast("object", value), BYTES)
    try:
        try:
            return to_json(value).decode()
        except PydanticSerializationError:  # file names may contain lone surrogates
            plain = to_jsonable_python(map_texts(value, repair_surrogates))
            return to_json(map_texts(plain, repair_surrogates)).decode()
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        reason = BYTES if isinstance(error, UnicodeDecodeError) else clip(str(error), 300)
        raise _not_json(value, reason) from error


def _not_json(value: object, reason: str) -> ToolError:
    return ToolError(
        f"it ran, but returned a value of type {type(value).__name__} that cannot be shown as JSON: {reason}"
    )


def _check(function: Any) -> None:
    if isinstance(function, Tool):
        raise ConfigError(f"{function.name!r} is already a tool; give it to the agent directly")
    if not inspect.isroutine(function):
        raise ConfigError(f"{function!r} is not a function; write one around it, with type hints")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{function.__qualname__} is a generator; a tool must return everything at once, in a list"
        )
