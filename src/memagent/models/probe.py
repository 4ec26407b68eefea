"""Finds out what a served model is, and what its server can do."""

import re
import time

from pydantic import JsonValue

from memagent.errors import ConfigError, ModelError
from memagent.messages import ChatRequest, Leaf, Message, Sampling
from memagent.models.base import ChatModel, innermost
from memagent.models.dialects import Dialect
from memagent.models.openai import OpenAIModel
from memagent.models.server import Server
from memagent.threads import in_thread
from memagent.tokens.byte_bound import ByteBound

QUESTION = (Message(role="user", content="Say in one word that you are ready."),)
OUTPUT = 32
"""Tokens that the test call may generate."""


class TestCall(Leaf):
    """One chat request and its outcome."""

    __test__ = False  # keeps pytest from collecting it as a test

    text: str
    prompt_tokens: int
    """Prompt tokens as the server reports them."""
    counted: int
    """Prompt tokens as memagent counts them: higher than the server's figure if the counter is a bound."""
    completion_tokens: int
    seconds: float


class Probe(Leaf):
    """What is known about one server."""

    model: str
    base_url: str
    dialect: str
    version: str | None
    window: int | None
    serves: tuple[str, ...] | None
    """Names in its model list; None if it has no list."""
    counter: str
    """The counter's name."""
    counts: str
    """Who counts: `tokenizer` (one on this machine, checked against the server if that counts), `server`,
    `both` (texts here, conversations there) or `bytes` (an upper bound)."""
    token_ids: bool
    """Whether it returns token ids and log-probabilities on request."""
    thinking: bool
    """Whether reasoning can be switched off."""
    pattern: bool
    """Whether replies can be constrained to a regular expression."""
    speculation: str | None
    """Speculative decoding: `off`, its method, or `on` if the method isn't reported; None if unknown."""
    advice: str | None
    """How to start the server with n-gram speculation, or why not to."""
    call: TestCall


async def probe(model: ChatModel) -> list[Probe | ModelError]:
    """Asks each of a model's servers what it is, and makes one test call to each.

    Returns:
        For each server, what is known about it, or the error.

    Raises:
        ConfigError: the model runs without a server.
        ModelError: there is one server, and it cannot be reached or failed.
    """
    if not isinstance(model := innermost(model), OpenAIModel):
        raise ConfigError(f"the model {model.name!r} has no server: there is nothing to probe")
    probes: list[Probe | ModelError] = []
    for server in model.servers:
        try:
            probes.append(await _probe(model.only(server), server))
        except ModelError as error:
            if len(model.servers) == 1:
                raise
            probes.append(error)
    return probes


async def _probe(model: OpenAIModel, server: Server) -> Probe:
    listing = await server.listing()
    dialect = await server.dialect()
    counter = await model.counter()
    request = ChatRequest(
        messages=QUESTION, max_tokens=OUTPUT, sampling=Sampling(temperature=0), thinking=False
    )
    start = time.monotonic()
    completion = await model.complete(request)
    call = TestCall(
        text=completion.text,
        prompt_tokens=completion.usage.prompt_tokens,
        counted=await in_thread(counter.count_messages, QUESTION, thinking=False),
        completion_tokens=completion.usage.completion_tokens,
        seconds=time.monotonic() - start,
    )
    speculation, advice = await in_thread(server_speculation, server, dialect)
    return Probe(
        model=model.name,
        base_url=server.endpoint.base_url,
        dialect=dialect.name,
        version=await in_thread(server_version, server, dialect),
        window=await model.window(),
        serves=None if listing is None else tuple(entry.id for entry in listing),
        counter=counter.name,
        counts=getattr(counter, "who", "bytes" if isinstance(counter, ByteBound) else "tokenizer"),
        token_ids=dialect.token_ids,
        thinking=dialect.engine,
        pattern=dialect.pattern is not None,
        speculation=speculation,
        advice=advice,
        call=call,
    )


def server_version(server: Server, dialect: Dialect) -> str | None:
    """Returns the server's version; None if it doesn't report it. Blocks."""
    if dialect.version is None:
        return None
    path, key = dialect.version
    try:
        version: JsonValue = server.ask(path).get(key)
    except ModelError:
        return None
    return server.endpoint.quote(version) if isinstance(version, str) else None


def server_speculation(server: Server, dialect: Dialect) -> tuple[str | None, str | None]:
    """Returns `Probe.speculation` and `Probe.advice` of a server. Blocks."""
    speculation = dialect.speculation
    if speculation is None:
        return None, None
    try:
        page = server.text(speculation.path)
    except ModelError:
        return None, None
    warning = speculation.warning if re.search(speculation.wrong, page) else None
    if match := re.search(speculation.on, page):
        return server.endpoint.quote(match[1]) if match.re.groups else "on", warning
    if re.search(speculation.off, page):
        return "off", warning or f"n-gram speculation makes updates faster: {speculation.flags}"
    return None, None
