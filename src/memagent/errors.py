"""Every error that memagent raises on purpose; docs/errors.md has the tree, with causes and remedies.

A message gives the value (`!r`) and the remedy. Errors from other libraries are translated where they
enter (documents, models, runstore), with the original as `__cause__`.
"""


class MemagentError(Exception):
    """Base of all errors of this package.

    `run_id` is set if the error ended a run that can be resumed.
    """

    run_id: str | None = None


class ConfigError(MemagentError):
    """A setting is wrong; nothing was sent to a model."""


class HistoryChanged(ConfigError):
    """A buffer was fed a history that does not continue the last one."""


class NoModel(ConfigError):
    """No model was named and none was found; the message lists what was looked for."""


class PromptSetError(ConfigError):
    """A prompt set cannot be found, read, or rendered."""


class TokenizerError(ConfigError):
    """A tokenizer cannot be found or loaded."""


class BudgetError(ConfigError):
    """The model's window cannot be divided as asked."""


class WindowUnknown(BudgetError):
    """Neither the model nor the caller gives the window's size."""


class WindowTooSmall(BudgetError):
    """The window leaves no room for a chunk, or for the turns of a session."""


class QuestionTooLong(BudgetError):
    """The question, or a message of a session, exceeds its share of the window."""


class DocumentError(MemagentError):
    """The source cannot be read as text."""


class DocumentNotFound(DocumentError):
    """The path does not exist, is a folder without files, or may not be read."""


class EmptyDocument(DocumentError):
    """The source holds no text."""


class BinaryDocument(DocumentError):
    """The source is not text, or is in an unsupported format."""


class DecodingError(DocumentError):
    """A byte of the source does not decode.

    `offset` is that byte's position in the (decompressed) source, or None if
    the failure has no single position.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class DocumentRequired(DocumentError):
    """The run's source was not a path, so it must be passed again."""


class ModelError(MemagentError):
    """A call to a model failed.

    `retryable` says whether the same request may succeed later, `retry_after` is the delay in seconds that the
    server asked for, `attempts` is how many times the request was sent (0: not at all).
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
    """The TLS connection failed: the certificate is not trusted, or http and https are mixed up."""

    retryable = False


class RequestTimeout(ModelError):
    """The server did not answer in time."""

    retryable = True


class ServerBusy(ModelError):
    """The server asks to retry later (429, 503)."""

    retryable = True


class ServerFailed(ModelError):
    """The server failed (5xx other than 503)."""

    retryable = True


class BadResponse(ModelError):
    """The server's reply is not a chat completion."""

    retryable = True


class AuthenticationFailed(ModelError):
    """The server rejects the API key, or requires one."""


class ModelNotFound(ModelError):
    """The server does not serve the named model."""


class NoReply(ModelError):
    """The reply has no text: the model refused, or called a tool that it wasn't given."""


class ContextOverflow(ModelError):
    """Prompt and output do not fit the model's window."""


class PromptTruncated(ModelError):
    """The server silently truncated the prompt: it reports far fewer tokens than were sent."""


class DeviceFull(ModelError):
    """The prompt does not fit in the memory of the device that runs the model."""


class EngineFailed(ModelError):
    """An engine in this process did not start, or died."""


class FetchFailed(ModelError):
    """A model could not be downloaded or converted; nothing was kept."""


class RequestRefused(ModelError):
    """The server rejects the request (other 4xx)."""


class ToolError(MemagentError):
    """A tool, or its server, failed.

    A tool may raise it for a problem that the model can act on: the model gets the message verbatim.
    """


class BadArguments(ToolError):
    """The arguments of a call are invalid; the message says which, and what is expected."""


class LimitReached(MemagentError):
    """A usage limit was reached.

    Raised before the call that would exceed the limit; the reading loop turns it into
    `StopReason.LIMIT`, so callers of an agent see it as data, not as an exception.
    """


class SessionError(MemagentError):
    """An operation on a tool session's context failed."""


class CompactionFailed(SessionError):
    """The context could not be compacted; the history is unchanged, and compaction may be retried."""


class OutOfSummaries(SessionError):
    """A session has used all its summaries, and its context is full again.

    The loop turns it into `StopReason.OUT_OF_SUMMARIES`, so callers of an agent see it as data.
    """


class OutputInvalid(SessionError):
    """No reply matched the output type; sending the message again with the same type asks again."""


class UnknownHandle(SessionError):
    """The archive has no text with that handle."""


class StoreError(MemagentError):
    """A run store operation failed."""


class RunNotFound(StoreError):
    """The store has no run with that id."""


class RunMismatch(StoreError):
    """The run id exists, but with a different document, question or setting."""


class RunUnfinished(StoreError):
    """The run has no answer yet."""


class RunBusy(StoreError):
    """Another process (or task) is working on this run."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of memagent."""


class StoreCorrupt(StoreError):
    """The file is not a run store, or it or one of its runs is damaged."""


class StoreReadOnly(StoreError):
    """The store or its folder isn't writable."""


class StoreFull(StoreError):
    """The disk is full; what was committed is intact."""
