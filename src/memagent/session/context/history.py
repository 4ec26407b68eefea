"""How a buffer recognises a history that grew, and what it needs to go on in another process."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import ValidationError

from memagent.errors import ConfigError, HistoryChanged
from memagent.messages import Leaf, Message
from memagent.session.context.saved import Saved
from memagent.texts import describe_problem

STATE_VERSION = 1


class Mark(Leaf):
    """The beginning of a history, without its system messages."""

    count: int = 0
    digest: str = ""
    """Of that many messages."""


class Chain:
    """A history, with the digest of each of its beginnings."""

    def __init__(self, messages: Sequence[Message]) -> None:
        length = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
        self.systems, self.rest = tuple(messages[:length]), tuple(messages[length:])
        self._digests = [""]
        for message in self.rest:
            raw = self._digests[-1] + message.model_dump_json()
            self._digests.append(hashlib.blake2b(raw.encode(), digest_size=16).hexdigest())

    def mark(self, count: int | None = None) -> Mark:
        """The mark of its first `count` messages; of all by default."""
        count = len(self.rest) if count is None else count
        return Mark(count=count, digest=self._digests[count])

    def begins_with(self, mark: Mark) -> bool:
        """Whether it continues a history."""
        return mark.count <= len(self.rest) and self.mark(mark.count) == mark


class History(Leaf):
    """What a buffer was fed last, and what it returned: the next history continues one of them."""

    prompt: tuple[Message, ...]
    """The messages that start every request: the system's, and the first of the others if it is a user's."""
    systems: tuple[Message, ...]
    """System messages as fed."""
    fed: Mark
    sent_systems: tuple[Message, ...]
    """System messages as returned: at most one."""
    sent: Mark

    @classmethod
    def start(cls, chain: Chain) -> Self:
        """That of a history of which nothing was read but the prompt."""
        task = tuple(message for message in chain.rest[:1] if message.role == "user")
        systems, mark = chain.systems, chain.mark(len(task))
        return cls(
            prompt=(*systems, *task), systems=systems, fed=mark, sent_systems=systems, sent=mark
        )

    def follow(self, chain: Chain) -> Self:
        """The same at the next history: what of it was read before, and its prompt.

        Raises:
            HistoryChanged: it continues neither what was fed last nor what was returned.
        """
        for mark, systems in ((self.fed, self.systems), (self.sent, self.sent_systems)):
            if chain.begins_with(mark):
                known = {"fed": mark, "systems": chain.systems}
                if chain.systems != systems:
                    task = [message for message in self.prompt if message.role == "user"]
                    known["prompt"] = (*chain.systems, *task)
                return self.model_copy(update=known)
        raise HistoryChanged(
            f"the history of {len(chain.rest)} messages (without system messages) does not begin with the "
            f"{self.fed.count} that were fed before: some were edited, or are gone. A buffer is for one conversation: "
            f"make another one for this history, or restore the state() that was saved at the point it goes back to"
        )

    def with_sent(self, messages: Sequence[Message]) -> Self:
        """The same after messages were returned."""
        sent = Chain([Message.from_openai(message.to_openai()) for message in messages])
        return self.model_copy(update={"sent_systems": sent.systems, "sent": sent.mark()})


class Stored(Leaf):
    """What `SummaryBuffer.state` returns."""

    version: Literal[1] = STATE_VERSION
    context: Saved
    history: History

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> Self:
        """Reads a state.

        Raises:
            ConfigError: it is not one, or of a later version of memagent.
        """
        if (version := state.get("version")) != STATE_VERSION:
            raise ConfigError(
                f"a state of version {version!r} cannot be read by this memagent, which writes version "
                f"{STATE_VERSION}: give what state() returned, or use the memagent that wrote it"
            )
        try:
            return cls.model_validate(state)
        except ValidationError as error:
            raise ConfigError(
                f"this is not a buffer's state ({describe_problem(error)}): give what state() returned"
            ) from error
