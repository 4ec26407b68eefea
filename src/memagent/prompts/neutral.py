"""Keeps texts from closing a prompt field or becoming a control token (promise 6).

A look-alike gets U+2060 (word joiner: invisible, zero width) after its first character. What is no
look-alike stays byte-identical.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from memagent.prompts.promptset import Tags

JOINER = "\u2060"

# Control tokens of the model families in use, by form: ChatML, Llama 3, Harmony, Phi (<|...|>), DeepSeek
# (full-width bars), Llama 2 and Mistral ([INST], <<SYS>>), Gemma (<start_of_turn>), T5 (<extra_id_0>),
# BERT ([CLS]), sentence marks, reasoning and tool-call marks. Inner lengths are bounded so that a text of
# nothing but "<" is still scanned in linear time.
_WORDS = (
    "s bos eos pad unk mask sep cls sop eop eot eod think thinking tool tools tool_calls? tool_response "
    r"tool_result function_calls? function_results? image audio video (?:start|end)_of_\w{1,16} "
    r"unused_?\d{1,5} extra_id_\d{1,4} reserved_\w{1,32}"
)
_CAPITALS = (
    "INST SYSTEM_PROMPT AVAILABLE_TOOLS TOOL_CALLS TOOL_RESULTS TOOL_CONTENT THINK IMG BOS EOS CLS SEP MASK "
    "PAD UNK [gs]MASK"
)
_CONTROL_FORMS = (
    r"<[|\uff5c][^<>\n]{1,64}?[|\uff5c]>",
    rf"<\s{{0,4}}/?\s{{0,4}}(?:{'|'.join(_WORDS.split())})\s{{0,4}}>",
    r"<</?SYS>>",
    rf"\[/?(?:{'|'.join(_CAPITALS.split())})\]",
)


class Neutraliser:
    """Makes look-alikes of field tags and control tokens harmless.

    Args:
        tags: the prompt set's field tags; None leaves tags alone (`trust="exact"`, for checkpoints that
            were trained on untouched text).
        control_tokens: further texts that the model's tokenizer reads as control tokens.
    """

    def __init__(self, tags: Tags | None, control_tokens: Iterable[str] = ()) -> None:
        forms = [re.escape(token) for token in sorted(control_tokens, key=len, reverse=True)]
        forms += _CONTROL_FORMS
        if tags is not None:
            names = "|".join(re.escape(tag) for tag in (tags.question, tags.memory, tags.chunk))
            forms.append(rf"<\s{{0,8}}/?\s{{0,8}}(?:{names})(?:[\s/][^<>]{{0,64}})?>")
        self._pattern = re.compile("|".join(forms), re.IGNORECASE)

    def __call__(self, text: str) -> tuple[str, list[int]]:
        """Neutralises `text`.

        Returns:
            The safe text, and for each joiner that was put in the position in `text` of the character
            before it, ascending. Without look-alikes the text itself and an empty list.
        """
        places = [match.start() for match in self._pattern.finditer(text)]
        if not places:
            return text, places
        parts: list[str] = []
        done = 0
        for place in places:
            parts.append(text[done : place + 1])
            done = place + 1
        parts.append(text[done:])
        return JOINER.join(parts), places

    def safe(self, text: str) -> str:
        """The safe text alone."""
        return self(text)[0]
