"""Every error that memagent raises on purpose; docs/errors.md draws their tree, with causes and remedies.

A message names the value (`!r`) and the remedy. Errors of other libraries are translated where they
enter (documents, models, runstore), with the original as `__cause__`.
"""

from __future__ import annotations


class MemagentError(Exception):
    """Base of all errors of this package.

    `run_id` is set when the error ended a run that can be resumed.
    """

    run_id: str | None = None


class ConfigError(MemagentError):
    """A setting is wrong; nothing was sent to a model."""


class NoModel(ConfigError):
    """No model was named and none was found; the message lists what was looked for."""


class PromptSetError(ConfigError):
    """A prompt set cannot be found, read, or rendered."""


class TokenizerError(ConfigError):
    """A tokenizer cannot be found or loaded."""


class BudgetError(ConfigError):
    """The model's window cannot be divided as asked."""


class WindowUnknown(BudgetError):
    """Neither the model nor the caller says how large the window is."""


class WindowTooSmall(BudgetError):
    """The window leaves no room for a chunk."""


class QuestionTooLong(BudgetError):
    """The question takes more tokens than its share of the window."""


class DocumentError(MemagentError):
    """The source cannot be read as text."""


class DocumentNotFound(DocumentError):
    """The path does not exist, is a directory, or may not be read."""


class EmptyDocument(DocumentError):
    """The source holds no text."""


class BinaryDocument(DocumentError):
    """The source is not text (or a format that this version does not read)."""


class DecodingError(DocumentError):
    """A byte of the source does not decode.

    `offset` is the position of that byte from the start of the (decompressed) source, or None where
    the failure has no single position.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class DocumentRequired(DocumentError):
    """The run's source was not a path, so it has to be handed in again."""


class ModelError(MemagentError):
    """A call to a model failed.

    `retryable` says whether the same request may succeed later, `retry_after` is the server's wish in
    seconds, `attempts` counts how often the request was sent before this error was given up on (0: not at all).
    """

    retryable: bool = False

    def __init__(self, message: str, *, retry_after: float | None = None, attempts: int = 1):
        super().__init__(message)
        self.retry_after = retry_after
        self.attempts = attempts


class ConnectionFailed(ModelError):
    """The server cannot be reached, or the connection broke."""

    retryable = True


class TLSFailed(ConnectionFailed):
    """No encrypted connection comes about: the certificate is not trusted, or http and https are mixed up."""

    retryable = False


class RequestTimeout(ModelError):
    """The server did not answer in time."""

    retryable = True


class ServerBusy(ModelError):
    """The server asks to come back later (429, 503)."""

    retryable = True


class ServerFailed(ModelError):
    """The server failed (5xx other than 503)."""

    retryable = True


class BadResponse(ModelError):
    """The server's reply is not a chat completion."""

    retryable = True


class AuthenticationFailed(ModelError):
    """The server refuses the API key, or wants one."""


class ModelNotFound(ModelError):
    """The server does not serve the model that was named."""


class NoReply(ModelError):
    """The model answered with no text: it refused, or called a tool that it was not given."""


class ContextOverflow(ModelError):
    """Prompt and output do not fit the model's window."""


class PromptTruncated(ModelError):
    """The server cut the prompt without a word: it reports far fewer tokens than the prompt has."""


class DeviceFull(ModelError):
    """The prompt does not fit the memory of the device that the model runs on."""


class FetchFailed(ModelError):
    """A model could not be downloaded or converted; nothing was kept."""


class RequestRefused(ModelError):
    """The server refuses the request (other 4xx)."""


class ToolError(MemagentError):
    """A tool, or the server that it comes from, failed.

    A tool may raise it for what a model can act upon: the model is told the message as it is.
    """


class BadArguments(ToolError):
    """The arguments of a call do not fit the tool; the message says which, and what is expected."""


class LimitReached(MemagentError):
    """A usage limit is reached.

    Raised before the call that would pass the limit; the reading loop turns it into
    `StopReason.LIMIT`, so callers of an agent see it as data, not as an exception.
    """


class SessionError(MemagentError):
    """The context of a tool session cannot do what was asked."""


class CompactionFailed(SessionError):
    """The context could not be made smaller; the history is as it was, and it may be tried again."""


class OutOfSummaries(SessionError):
    """A session has written as many summaries as it may, and its context is full again.

    The loop turns it into `StopReason.OUT_OF_SUMMARIES`, so callers of an agent see it as data.
    """


class UnknownHandle(SessionError):
    """The archive holds no text of that handle."""


class StoreError(MemagentError):
    """The run store cannot do what was asked."""


class RunNotFound(StoreError):
    """The store has no run of that id."""


class RunMismatch(StoreError):
    """The run id exists, with another document, question or setting."""


class RunBusy(StoreError):
    """Another process (or task) is working on this run."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of memagent."""


class StoreCorrupt(StoreError):
    """The file is not a run store, or it is damaged."""


class StoreReadOnly(StoreError):
    """The store, or its folder, cannot be written."""


class StoreFull(StoreError):
    """The disk is full; what was committed is intact."""
