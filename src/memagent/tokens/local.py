"""Counts with a `tokenizer.json` from disk."""

import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolSpec
from memagent.texts import repair_surrogates
from memagent.tokens.base import JOINER
from memagent.tokens.byte_bound import prompt_bound
from memagent.tokens.locality import is_local
from memagent.tokens.measured import MeasuredText
from memagent.tokens.template import ChatTemplate, find_template

logger = logging.getLogger("memagent")

_NAMES = ("tokenizer.json", "tokenizer.json.gz")


class TokenizerFile:
    """A tokenizer of the `tokenizers` library.

    Added tokens are recognised inside texts, as by servers that load the same file. A chat template next to it
    (`chat_template.jinja`, `tokenizer_config.json`) makes prompt counts exact; without one they are upper bounds.
    Control tokens that it reads in spite of U+2060 are named in a warning, since they can't be neutralised.

    Args:
        path: a tokenizer.json, gzipped or not, or a folder with one.

    Raises:
        TokenizerError: it is missing or can't be loaded.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        from tokenizers import Tokenizer

        file, data = _read(Path(path))
        self._file = file
        try:
            self._tokenizer = Tokenizer.from_buffer(data)
            content: dict[str, Any] = json.loads(data)
            # The library's ids: those in the file may differ.
            added_tokens = self._tokenizer.get_added_tokens_decoder()
            self._local = is_local(content)
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"cannot load the tokenizer {str(file)!r}: {error!r}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # It adds nothing to plain text, but some post-processors exclude leading spaces from offsets.
        self._tokenizer.post_processor = None
        self._template = find_template(file.parent)
        self.exact = self._template is not None
        """Whether counts of conversations are exact; else they are upper bounds."""
        self.name = f"tokenizer.json:{_digest(data, self._template)}"
        control: dict[int, str] = {}
        # Those that steer the model: flagged special, or written like markup.
        for i, token in added_tokens.items():
            text = token.content
            markup = (text[:1], text[-1:]) in (("<", ">"), ("[", "]")) and len(text) > 2
            if text.strip() and (token.special or markup):
                control[i] = text
        self.control_tokens = frozenset(control.values())
        # Any text that the vocabulary lacks is read as the unknown token, so this isn't a way to write one.
        unknown_token = content["model"].get("unk_token")
        if isinstance(content["model"].get("unk_id"), int):
            unknown_token = self._tokenizer.id_to_token(content["model"]["unk_id"])
        survivors = sorted(
            text
            for i, text in control.items()
            if text != unknown_token and i in self._encode(f"{text[0]}{JOINER}{text[1:]}").ids
        )
        if survivors:
            logger.warning(
                "the tokenizer %r reads %s as control tokens even with an invisible U+2060 inside: texts that contain "
                "them cannot be neutralised, and promise 6 (no text becomes a control token) does not hold",
                str(file),
                ", ".join(map(repr, survivors)),
            )

    def count(self, text: str) -> int:
        """Counts the tokens of `text`. Lets other threads run meanwhile."""
        return len(self._encode(repair_surrogates(text)))

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """See `TokenCounter.count_messages`."""
        if self._template is not None:
            return self.count(self._template.render(messages, thinking=thinking, tools=tools))
        return prompt_bound(self, messages, tools=tools)

    def prompt_ids(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> tuple[int, ...]:
        """Returns the ids of the rendered prompt, as many as `count_messages` counts; only if that is `exact`."""
        assert self._template is not None
        text = self._template.render(messages, thinking=thinking, tools=tools)
        return tuple(self._encode(repair_surrogates(text)).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids to text, without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def measure(self, text: str) -> MeasuredText:
        """Measures a text, tokenising it only as far as cutting needs."""
        return MeasuredText(repair_surrogates(text), self._encode, self._cut, local=self._local)

    def _encode(self, text: str) -> Any:
        # Without offsets, and (unlike `encode`) without holding the interpreter lock: a third faster.
        try:
            return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(
                f"the tokenizer {str(self._file)!r} cannot tokenise every text: {error}"
            ) from error

    def _cut(self, text: str, encoding: Any, limit: int) -> int:
        """Counts characters in the first `limit` tokens: by their text if it matches the original, else by offsets."""
        head = self._tokenizer.decode(encoding.ids[:limit], skip_special_tokens=False)
        head = head.rstrip("\ufffd")  # a character that the last token splits
        if head and text.startswith(head):
            return len(head)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        # Single lookups: listing all offsets of a chunk costs as much as tokenising a good part of it.
        last_span, next_span = (encoding.token_to_chars(i) or (0, 0) for i in (limit - 1, limit))
        # Tokens that share a character both report all of it; it belongs to the later one.
        return min(last_span[1], next_span[0]) if next_span[1] > next_span[0] else last_span[1]


def _read(path: Path) -> tuple[Path, bytes]:
    file = next((p for p in (path, *(path / name for name in _NAMES)) if p.is_file()), None)
    if file is None and path.is_dir():
        raise TokenizerError(
            f"the folder {str(path)!r} has none of {', '.join(_NAMES)}; save the model's fast tokenizer "
            f"there (tokenizer.save_pretrained)"
        )
    if file is None:
        raise TokenizerError(f"no tokenizer at {str(path)!r}; name a tokenizer.json or its folder")
    try:
        data = file.read_bytes()
        return file, gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        raise TokenizerError(f"the tokenizer {str(file)!r} cannot be read: {error}") from error


def _digest(data: bytes, template: ChatTemplate | None) -> str:
    """Names the content: moving the file doesn't change the name, but editing the template does."""
    digest = hashlib.sha256(data)
    if template is not None:
        digest.update(json.dumps([template.source, template.special_tokens]).encode())
        digest.update((template.tool_source or "").encode())
    return digest.hexdigest()[:12]
