"""Keeps texts from closing a prompt field or becoming a control token (promise 6).

A look-alike gets U+2060 (word joiner: invisible, zero width) after its first character. Everything
else stays byte-identical.

Look-alikes may overlap: `<|[INST]|>` has one inside another, and breaking only the outer one would leave
the inner one intact. So every start is checked separately, and each gets its joiner.

Whether a look-alike starts at a position depends only on the text up to its end. So the prefixes of a
text without look-alikes have none either, which the chunker relies on.

A control token of one character can't be broken up, and is left alone.
`TokenizerFile` names such tokens in a warning when it is loaded.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from memagent.tokens.base import JOINER

# Control tokens of common model families, by form, since most tokenizers aren't on this machine. In angle
# brackets: sentence, reasoning and tool-call markers.
_WORDS = (
    r"s bos eos eot eod eop eom eoa sop pad unk mask sep cls think thinking tools? tool_calls? toolcall "
    r"function_calls? answer image audio video ref box quad (?:unused|special|reserved)\d{1,5} mask:\d{1,5} "
    r"(?:seed|minimax):\w{1,64}"
)
# In square brackets, which are common in code and prose, only by name (Mistral, BERT, GLM, Kimi, InternLM),
# and in the tokens' exact case: x[mask] is an index.
_NAMES = (
    r"INST SYSTEM_PROMPT MODEL_SETTINGS AVAILABLE_TOOLS TOOL_[A-Z]{1,32} ARGS CALL_ID THINK PREFIX MIDDLE SUFFIX "
    r"IMG IMG_[A-Z]{1,32} AUDIO BEGIN_AUDIO TRANSCRIBE STREAMING_[A-Z]{1,32} BOS EOS EOT CLS SEP MASK PAD UNK "
    r"[gs]MASK unused\d{1,5} UNUSED_TOKEN_\d{1,5} control_\d{1,5} SPECIAL_\d{1,5} extra_id_\d{1,5} "
    r"(?:start|end)_header_id"
)
# First character, and what must follow it. No repetition crosses the next first character or backtracks
# (`++`), so a text of nothing but first characters is scanned in linear time.
_CONTROL_FORMS = (
    ("<", r"\|[^<>\n]{2,}+(?<=\|)>"),  # <|...|>: ChatML, Llama 3, Harmony, Phi, DeepSeek
    ("<", r"\|[^<>\s|][^<>\s]*+>"),  # <|turn> and <turn|>: Gemma 4
    ("<", rf"[^<>\s|{JOINER}][^<>\s|]*+\|>"),
    ("<", rf"\s*+/?\s*+(?:{'|'.join(_WORDS.split())})\s*+>"),
    # With an underscore: <start_of_turn>, <EOS_TOKEN>, <SPECIAL_12>, <extra_id_0>, <arg_key> and the like. HTML has
    # no such tags; the types of C (<size_t>) are left out.
    ("<", r"/?(?=[a-z0-9:]++_++[a-z0-9])(?![\w:]++(?<=_t)>)[\w:]++>"),
    ("<", r"</?SYS>>"),  # Llama 2
    ("[", r"\|[^\[\]\s]{2,}+(?<=\|)\]"),  # [|endofturn|]: EXAONE
    ("[", rf"(?-i:/?(?:{'|'.join(_NAMES.split())})\])"),
    ("[", r"e~\["),  # MiniMax
    ("]", r"~!?b[\[\]]"),
    ("]", r"![a-z]~\["),
    ("]", r"<\][^<>\[\]\n]++\[>\["),
    ("/", r"nothink"),  # GLM
    ("◁", r"/?\w{1,32}▷"),  # Kimi-VL
)
# Unicode forms of an ASCII character that NFKC (and for two of them NFC) maps to that character.
_COMPATIBLE = (
    "\xa0-\xba\u017f\u02b0-\u02e3\u037e\u1d2c-\u1dbb\u1fef-\u202f\u205f-\u209c\u2102-\u217f\u2460-\u24ea\u2c7c\u2c7d"
    "\u3000\ua7f2-\ua7f4\ufb29\ufe10-\ufe6b\uff01-\uff5e\U000107a5\U0001d400-\U0001d7ff\U0001f12b-\U0001f149"
    "\U0001fbf0-\U0001fbf9"
)


class Neutraliser:
    """Neutralises look-alikes of field tags and control tokens.

    Tokenizers that normalise their input read full-width letters and brackets as plain ones, so they are
    treated as plain ones here.

    Args:
        tags: the names of tags; None leaves tags alone (`trust="exact"`, for checkpoints that were trained on
            untouched text).
        control_tokens: other texts that the model's tokenizer reads as control tokens.
    """

    def __init__(self, tags: Iterable[str] | None, control_tokens: Iterable[str] = ()) -> None:
        forms = [*_CONTROL_FORMS]
        if tags is not None:
            names = "|".join(map(re.escape, tags))
            forms.append(("<", rf"\s*+/?\s*+(?:{names})(?:[\s/][^<>]*+)?>"))
        self._pattern, self._firsts = _starts(forms)
        for token in sorted(set(map(_plain, control_tokens))):
            first, rest = token[:1], re.escape(token[1:])
            if rest and not self._pattern.match(token):
                forms.append((first, rest))
        self._pattern, self._firsts = _starts(forms)

    def __call__(self, text: str) -> tuple[str, list[int]]:
        """Neutralises `text`.

        Returns:
            The safe text, and for each inserted joiner the position in `text` of the character
            before it, ascending. Without look-alikes, the text itself and an empty list.
        """
        plain = text if text.isascii() else _plain(text)
        if not any(map(plain.__contains__, self._firsts)):  # forty times faster than the search
            return text, []
        places = [match.start() for match in self._pattern.finditer(plain)]
        cuts = [0, *(place + 1 for place in places), len(text)]
        return JOINER.join(text[start:end] for start, end in pairwise(cuts)), places

    def safe(self, text: str) -> str:
        """Neutralises `text`; returns only the safe text."""
        return self(text)[0]


def _starts(forms: Iterable[tuple[str, str]]) -> tuple[re.Pattern[str], Iterable[str]]:
    """Returns a pattern for first characters of look-alikes, with a look-ahead for the rest, and these characters."""
    suffixes: defaultdict[str, list[str]] = defaultdict(list)
    for first, rest in forms:
        for char in {first, *first.lower()[:1], *first.upper()[:1]}:
            suffixes[char].append(rest)
    # The leading literal, outside any flag, lets the search skip everything that can't begin a look-alike.
    patterns: list[str] = []
    for char, alternatives in suffixes.items():
        patterns.append(rf"{re.escape(char)}(?i:(?={'|'.join(alternatives)}))")
    return re.compile("|".join(patterns)), tuple(suffixes)


def _plain(text: str) -> str:
    """Returns the text as normalising tokenizers see it, as far as each character keeps its position."""
    forms, table = _compatible()
    return text.translate(table) if forms.search(text) else text


@cache
def _compatible() -> tuple[re.Pattern[str], dict[int, str]]:
    """Returns a pattern for Unicode forms of ASCII characters, and the characters that they stand for."""
    spans = re.findall("(.)(?:-(.))?", _COMPATIBLE)
    chars = [chr(i) for a, b in spans for i in range(ord(a), ord(b or a) + 1)]
    table = {ord(char): unicodedata.normalize("NFKC", char) for char in chars}
    table = {i: char for i, char in table.items() if len(char) == 1 and char.isascii()}
    # Beyond the first plane, single characters would be tried one by one, so one range is used.
    char_class = re.escape("".join(chr(i) for i in table if i < 0x10000))
    return re.compile(f"[{char_class}\U00010000-\U0001fbff]"), table
