"""`memagent serve`: the endpoint as a command."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import argument, option
from memagent.cli.setup import Reading
from memagent.errors import ConfigError
from memagent.texts import name_extra

KEYS = "MEMAGENT_SERVE_KEYS"
SERVER = "Endpoint"
KEYS_HELP = f"A file with one key per line; requests must send one of them. Default: {KEYS}, separated by commas."


NOT_SET = ("durable", "display", "json")
"""Options of a reading that an endpoint doesn't use."""


@dataclass(frozen=True, kw_only=True)
class Serve(Reading):
    """The options of `serve`."""

    spec: Annotated[str | None, argument("SPEC", opt.MODEL_HELP)] = None
    host: Annotated[
        str,
        option(
            "Address to listen on; any but this machine's needs keys.",
            "HOST",
            panel=SERVER,
            default=True,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, option("0 picks a free one.", "PORT", panel=SERVER, low=0, high=65535, default=True)
    ] = 8300
    overflow: Annotated[
        Literal["read", "refuse"],
        option(
            "What to do with requests that exceed the model's window.", panel=SERVER, default=True
        ),
    ] = "read"
    keys: Annotated[Path | None, option(KEYS_HELP, "FILE", panel=SERVER)] = None
    max_body: Annotated[
        int,
        option("Largest request body, also unpacked.", "MIB", panel=SERVER, low=1, default=True),
    ] = 32
    max_requests: Annotated[
        int, option("Concurrent requests; more get a 429.", "N", panel=SERVER, low=1, default=True)
    ] = 64
    grace: Annotated[
        int,
        option(
            "Seconds that requests have to finish when it is stopped.",
            "SECONDS",
            panel=SERVER,
            low=0,
            default=True,
        ),
    ] = 5

    def list_keys(self) -> tuple[str, ...]:
        """Returns the keys. Raises `ConfigError` if the file can't be read, or the address needs keys and has none."""
        from memagent.models.spec import look
        from memagent_serve.settings import is_local

        if self.keys is not None:
            try:
                lines = self.keys.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--keys {str(self.keys)!r} cannot be read: {error}") from error
        else:
            lines = next((setting.value for setting in look(KEYS)), "").split(",")
        keys = tuple(key for line in lines if (key := line.strip()) and not key.startswith("#"))
        if self.keys is not None and not keys:
            raise ConfigError(f"--keys {str(self.keys)!r} has no key: write one on a line")
        if not keys and not is_local(self.host):
            raise ConfigError(
                f"--host {self.host!r} lets other machines in, which needs keys: give a file (--keys), or {KEYS}"
            )
        return keys


def serve(given: Serve) -> None:
    """Serve a model with OpenAI's API and no context limit.

    Requests that fit the window reach the model's server unchanged. A longer document is read through a memory, a
    longer history is summarised; the response says so. Limits apply to each reading, and to the summaries of each
    request.
    """
    with report_errors(Outcome()) as outcome:
        if not all(map(find_spec, ("starlette", "uvicorn"))):
            raise ConfigError(name_extra("memagent serve", "serve"))
        from memagent import MemoryAgent, open_model
        from memagent.cli.fetch import ensure_fetched
        from memagent.cli.setup import chosen_store
        from memagent_serve.server import make_server
        from memagent_serve.settings import MIB, Settings

        keys, reading = given.list_keys(), given.reading()
        model = open_model(ensure_fetched(given.spec), **given.server())
        MemoryAgent(model, store=None, **reading)  # raises an error if a setting is wrong
        outcome.store = store = chosen_store(given.store)
        settings = Settings(
            keys=keys,
            overflow=given.overflow,
            max_body=given.max_body * MIB,
            max_requests=given.max_requests,
            window=given.window,
            reading=reading,
            store=store,
        )
        server = make_server(
            model,
            settings,
            host=given.host,
            port=given.port,
            grace=given.grace,
            say=lambda line: print(line, flush=True),
        )
        try:
            server.run()
        except SystemExit:  # uvicorn has printed why
            raise ConfigError(
                f"nothing can listen at --host {given.host!r}, --port {given.port!r}: choose another"
            ) from None
