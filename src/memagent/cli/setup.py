"""Turns a command line into questions, document, display, store, and the agent."""

from __future__ import annotations

import os
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from memagent.cli import options as opt
from memagent.cli.exits import Outcome
from memagent.cli.options import MODEL, RUN, TEXT, argument, chosen_display, limit, option
from memagent.documents import Document, open_document
from memagent.documents.files import list_files
from memagent.documents.formats import PDF
from memagent.errors import ConfigError, DocumentNotFound, StoreError
from memagent.messages import Sampling
from memagent.texts import expand, read_object
from memagent_formats import FILES, TEXTS, suffix_of

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent
    from memagent.models.limit import Limits
    from memagent.runstore import RunRecord, RunStore

SAMPLE_BYTES = 65536
"""Enough to tell one-byte texts from two-byte ones."""
GZIP_MAGIC = b"\x1f\x8b"
USER = r"(?i)^(https?://)?.*@"
"""The part of a URL up to its host, if it has a user or password."""
BASE_URL = (
    "The server's URL, ending in /v1, or several separated by commas. Default: MEMAGENT_BASE_URL, OPENAI_BASE_URL, "
    "then localhost, or for openai:NAME the OpenAI API."
)
HEADER = "A header to send with every request; may be repeated. It is not stored."
EXTRA_BODY = """Extra fields for every chat request: '{"top_k": 20}'. null leaves a field out."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options for reaching a server and sending it requests, and for showing the result."""

    base_url: Annotated[str | None, option(BASE_URL, "URL", panel=MODEL)] = None
    timeout: Annotated[
        float | None,
        option("Seconds to wait for a reply. Default: 600.", "SECONDS", panel=MODEL, low=0.001),
    ] = None
    headers: Annotated[
        list[str] | None, option(HEADER, "'NAME: VALUE'", "--header", panel=MODEL)
    ] = None
    extra_body: Annotated[str | None, option(EXTRA_BODY, "JSON", panel=MODEL)] = None
    retries: Annotated[
        int | None,
        option("How many times a failed call is retried. Default: 4.", "N", panel=MODEL, low=0),
    ] = None
    display: opt.DisplayOption = None
    json: opt.Json = False

    def server(self) -> dict[str, Any]:
        """Returns the arguments for `open_model`; raises a ConfigError for a bad header or extra body."""
        names = ("base_url", "timeout", "tokenizer")  # `resume` has no tokenizer
        arguments: dict[str, Any] = {name: getattr(self, name, None) for name in names}
        if self.headers is not None:
            pairs = [text.partition(":") for text in self.headers]
            if not all(name.strip() and colon for name, colon, _ in pairs):
                # The value is left out: it may be a secret.
                raise ConfigError("--header must be 'NAME: VALUE', separated by a colon")
            arguments["headers"] = {name.strip(): value.strip() for name, _, value in pairs}
        if self.extra_body is not None:
            arguments["extra_body"] = read_object(self.extra_body)
            if arguments["extra_body"] is None:
                raise ConfigError(f"--extra-body must be a JSON object, got {self.extra_body!r}")
        if self.retries is not None:
            from memagent.models.retry import RetryPolicy

            arguments["retry"] = RetryPolicy(attempts=self.retries + 1)
        return {name: value for name, value in arguments.items() if value is not None}

    def outcome(self, **known: Any) -> Outcome:
        """Returns what the command knows as it begins."""
        known = {"again": self.again()} | known
        return Outcome(chosen_display(self.display, json=self.json), **known)

    def again(self) -> list[tuple[str, Any]]:
        """Lists the options to repeat when resuming; the values of headers and secrets of URLs are left out."""
        hidden = [("header", f"{text.partition(':')[0]}: …") for text in self.headers or ()]
        urls = [re.sub(USER, r"\1…@", url.strip()) for url in (self.base_url or "").split(",")]
        address = ",".join(re.sub(r"\?.*", "?…", url) for url in urls)
        hidden += [("base-url", address)] if "…" in address else []  # others are stored unchanged
        names = ("store", "durable", *RunLimits.__annotations__, "timeout", "extra_body", "retries")
        options = [(name.replace("_", "-"), getattr(self, name, None)) for name in names]
        return hidden + options


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Options for how much may be spent."""

    max_calls: Annotated[int | None, limit("Stop after N calls; can be resumed.", low=1)] = None
    max_tokens: Annotated[
        int | None, limit("Stop after N prompt and completion tokens.", low=1)
    ] = None
    max_seconds: Annotated[float | None, limit("Stop after N seconds.")] = None
    max_cost: Annotated[float | None, limit("Stop once N is spent, at the given prices.")] = None
    prompt_price: Annotated[float | None, limit("Price per million prompt tokens.")] = None
    completion_price: Annotated[float | None, limit("Price per million completion tokens.")] = None

    def limits(self) -> Limits | None:
        """Returns the limits; None if there are none. Raises a `ConfigError` for a cost without prices."""
        from memagent.models.limit import Limits

        caps = {n.removeprefix("max_"): getattr(self, n) for n in RunLimits.__annotations__}
        return None if {*caps.values()} == {None} else Limits(**caps)


@dataclass(frozen=True, kw_only=True)
class Reading(ServerOptions, RunLimits):
    """Options for how documents are read, and where that is stored."""

    tokenizer: opt.Tokenizer = None
    temperature: opt.Temperature = None
    window: opt.Window = None
    chunk_tokens: opt.ChunkTokens = None
    memory_tokens: opt.MemoryTokens = None
    cuts: opt.CutsOption = None
    prompts: opt.Prompts = None
    gate: opt.GateOption = None
    trust: opt.TrustOption = None
    degenerate: opt.DegenerateOption = None
    store: opt.Store = None
    durable: opt.Durable = False

    def reading(self) -> dict[str, Any]:
        """Returns the given arguments for `MemoryAgent`; raises a ConfigError for a bad value."""
        from memagent.memory.plan import MemorySettings

        heat = self.temperature
        names = ("prompts", *MemorySettings.model_fields)
        arguments: dict[str, Any] = {name: getattr(self, name, None) for name in names}
        if (read_ahead := arguments["read_ahead"]) not in (None, "auto"):
            if not read_ahead.isdecimal() or not int(read_ahead):
                rule = "--read-ahead must be a number of at least 1, or auto"
                raise ConfigError(f"{rule}; got {read_ahead}")
            arguments["read_ahead"] = int(read_ahead)
        arguments["sampling"] = None if heat is None else Sampling(temperature=heat)
        arguments["limits"] = self.limits()
        return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Ask(Reading):
    """The options of `ask`; `estimate` has those that affect the calls."""

    doc: Annotated[str, argument("DOC", opt.DOC_HELP)]
    question: Annotated[str | None, argument("QUESTION", "What to find out.")] = None
    questions: Annotated[
        list[str] | None,
        option("Repeat it to ask several in one pass.", "QUESTION", "-q", "--question"),
    ] = None
    model: opt.Model = None
    seed: Annotated[int, option("Seed of the run.", panel=MODEL, default=True)] = 0
    read_ahead: opt.ReadAhead = None
    reread: opt.Reread = None
    encoding: Annotated[
        str | None, option("The document's encoding. Default: detected.", "NAME", panel=TEXT)
    ] = None
    errors: Annotated[
        Literal["strict", "replace"],
        option("Stop at a byte that does not decode, or replace it.", panel=TEXT, default=True),
    ] = "strict"
    run_id: Annotated[
        str | None,
        option("Name of the run. An unfinished run of that name is resumed.", "ID", panel=RUN),
    ] = None

    def list_questions(self) -> tuple[str, ...]:
        """Returns the questions in command-line order; raises a ConfigError if there is none, or it is a document."""
        first = () if self.question is None else (self.question,)
        question, path = self.question or "", os.path  # False if it can't be a path: pathlib raises
        is_path = path.isfile(question) or (path.exists(question) and not path.exists(self.doc))
        if is_path and self.doc != "-":
            raise ConfigError(
                f"the question {question!r} is a file or folder: did you swap DOC and QUESTION? Several files need a "
                f"pattern in quotes ('*.md')"
            )
        if not self.doc:
            raise DocumentNotFound("the document's path is empty")
        questions = (*first, *(self.questions or ()))
        if not questions:
            raise ConfigError("no question: give it after the document, or each one with -q")
        return questions

    def agent(self, store: RunStore | None) -> MemoryAgent:
        """Makes the agent; raises a ConfigError if a setting is wrong, or no model is named."""
        from memagent.cli.fetch import ensure_fetched
        from memagent.memory.agent import MemoryAgent
        from memagent.models.spec import open_model

        settings, spec = self.reading(), ensure_fetched(self.model)
        return MemoryAgent(open_model(spec, **self.server()), **settings, store=store)


def agent_again(
    record: RunRecord,
    store: RunStore,
    *,
    limits: Limits | None = None,
    model: str | None = None,
    changed: dict[str, Any] | None = None,
    **server: Any,
) -> MemoryAgent:
    """Rebuilds the agent of a stored run, with the run's budget and the current server options.

    Another `model` may replace the run's, and `changed` the stored arguments of `MemoryAgent`.
    """
    from memagent.memory.agent import MemoryAgent
    from memagent.models.spec import SCHEMES, open_model
    from memagent.prompts import PromptSet

    settings: dict[str, Any] = dict(record.settings)
    settings.pop("overlap", None)  # of earlier versions
    if (body := settings.pop("extra_body", None)) and not (model or "extra_body" in server):
        raise ConfigError(
            f"run {record.id!r} was made with the extra body {body}, whose values are not stored: give --extra-body "
            f"again; a branch may have another one, or none: '{{}}'"
        )
    old_model: str = settings.pop("model")
    old_server = {name: settings.pop(name, None) for name in ("base_url", "tokenizer")}
    # Another model has another address and tokenizer.
    endpoint: dict[str, Any] = server if model else old_server | server
    if not model and old_model.partition(":")[0] not in SCHEMES:
        raise ConfigError(
            f"run {record.id!r} uses the model {old_model!r}, which exists only in the program that made it: "
            f"resume it from Python, with MemoryAgent(that_model, ...).resume({record.id!r})"
        )
    # Not the requested values: the server's window may have changed since, and the defaults with it.
    if "window" not in (changed or {}):
        sizes = {"window": "window", "chunk_tokens": "chunk", "memory_tokens": "memory"}
        settings |= {name: record.binding["budget"][size] for name, size in sizes.items()}
    settings |= {
        "limits": limits,
        "prompts": PromptSet.parse(settings["prompts"].encode(), name="the run's prompt set"),
        "sampling": Sampling.model_validate(settings["sampling"]),
    }
    model = model or old_model
    return MemoryAgent(open_model(model, **endpoint), store=store, **settings | (changed or {}))


def chosen_store(store: Path | None, *, durable: bool = False) -> RunStore:
    """Opens the store to write to, created if it is missing."""
    from memagent.runstore import RunStore

    return RunStore(store or RunStore.default_path(), durable=durable)


def existing_store(store: Path | None, *, durable: bool = False) -> RunStore:
    """Opens an existing store to read or resume; raises a StoreError if the file that `--store` names is missing."""
    if store and not os.path.exists(expand(store)):  # noqa: PTH110 - never raises
        raise StoreError(f"there is no run store {str(store)!r}; check --store")
    return chosen_store(store, durable=durable)


def check_out(
    out: Path | None, *inputs: str | Path | None, store: Path | None = None, option: str = "--out"
) -> None:
    """Raises a ConfigError if a file for results can't be written, or is in what is read, or one of the run store's."""
    if out is None:
        return
    folder = out.resolve().parent  # where a file is replaced; a pipe or device is written to
    targets = (out, folder) if out.is_file() else (out if out.exists() else folder,)
    writable = folder.is_dir() and all(os.access(path, os.W_OK) for path in targets)
    problem = "" if writable else "it or its folder isn't writable, or its folder is missing"
    problem = "it is a folder" if out.is_dir() else problem
    problem = "that would be a file, not standard output" if out.name == "-" else problem
    places = {out.resolve(), *out.resolve().parents}
    beside = ("", "-wal", "-shm", "-journal", ".locks")  # SQLite's files, and the locks of runs
    if store and places & {Path(f"{store.resolve()}{end}") for end in beside}:
        problem = f"it belongs to the run store {str(store)!r}"
    for path in map(Path, filter(None, inputs)):
        if places & {p.resolve() for p in ([path] if path.is_dir() else list_files(path)[1])}:
            problem = f"{str(path)!r} is read, and that would change it"
    if problem:
        raise ConfigError(f"cannot write {option} {str(out)!r}: {problem}; name another file")


def open_source(
    doc: str | Path, *, encoding: str | None = None, errors: str = "strict", name: str | None = None
) -> Document:
    """Opens a path or `-` like `open_document`; `name` replaces the path as the document's name."""
    if str(doc) != "-":
        return open_document(Path(doc), encoding=encoding, errors=errors, name=name)
    # None (despite its type) if the process was started without it.
    if cast("object", sys.stdin) is None:
        raise DocumentNotFound("standard input is closed: give a path, or send the text to -")
    stdin, name = sys.stdin.buffer, name or "<stdin>"
    return open_document(stdin, encoding=encoding, errors=errors, name=name)


def expected_chars(document: Document) -> int | None:
    """Estimates the document's characters, for a progress bar, from the file's size and beginning.

    None if that is impossible before reading it: a stream, several files, or a format that is converted.
    """
    if document.path is None or document.size is None:
        return None
    size, path = document.size, Path(document.path)
    try:
        with path.open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
            if sample.startswith(GZIP_MAGIC):
                # The last four bytes of a gzip file are its unpacked size (modulo 4 GiB).
                file.seek(-4, 2)
                size = int.from_bytes(file.read(4), "little")
                sample = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(sample, SAMPLE_BYTES)
    except (OSError, zlib.error):  # reading the document reports it
        return None
    kind = (TEXTS | FILES).get(suffix_of(path))
    if kind not in (None, "markdown") or PDF.search(sample[:1024]):
        return None
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return size // 2
    chars = len(sample.decode("utf-8", errors="replace"))
    return round(size * chars / len(sample)) if sample else None


def open_again(record: RunRecord, given: str | None) -> Document | None:
    """Opens the document that a run read, or the given one; None if neither is a path."""
    path = given or record.source.get("path")
    if path is None:
        return None
    options: dict[str, Any] = record.source.get("options") or {}
    try:
        return open_source(path, name=None if given else record.source["name"], **options)
    except DocumentNotFound as error:
        raise DocumentNotFound(f"{error}, or give --document FILE") from error
