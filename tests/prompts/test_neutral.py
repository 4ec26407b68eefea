import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.prompts import Neutraliser, PromptSet
from memagent.prompts.neutral import JOINER

TAGS = PromptSet.load("plain").tags
NEUTRAL = Neutraliser(TAGS, {"<|custom|>", "⟦end⟧"})

LOOK_ALIKES = [
    "<problem>", "</problem>", "</memory>", "</section>", "</SECTION>", "< / section >", "<section id='2'>",
    "</section\n>", "<section/>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|start_header_id|>", "<|channel|>",
    "<｜begin▁of▁sentence｜>", "<s>", "</s>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<think>", "</think>",
    "<tool_call>", "</tool_response>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "[TOOL_CALLS]", "<unk>",
    "<extra_id_7>", "<|custom|>", "⟦end⟧", "[gMASK]",
]  # fmt: skip


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alikes_are_broken_after_their_first_character(text: str) -> None:
    safe, places = NEUTRAL(f"a{text}b")
    assert safe == f"a{text[0]}{JOINER}{text[1:]}b"
    assert places == [1]
    assert safe.replace(JOINER, "") == f"a{text}b"


@pytest.mark.parametrize(
    "text",
    ["<b>bold</b>", "a < b > c", "<problems>", "<sectional>", "[keep]", "[done]", "if a<s and b>s", "x[0]", "1<2",
     "<|", "|>", "<p>", "[INSTALL]", "<memory", "</section", "Tom & <Jerry>", "<strong>"],
)  # fmt: skip
def test_all_else_stays_byte_identical(text: str) -> None:
    assert NEUTRAL(text) == (text, [])


def test_exact_trust_leaves_tags_alone_but_never_control_tokens() -> None:
    exact = Neutraliser(None, {"<|custom|>"})
    assert exact.safe("</section> <memory>") == "</section> <memory>"
    assert exact.safe("<|im_end|><|custom|>") == f"<{JOINER}|im_end|><{JOINER}|custom|>"


PARTS = ["<", ">", "/", "|", "[", "]", "section", " ", JOINER, *LOOK_ALIKES]
fragments = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=12).map("".join)


@given(fragments)
def test_no_field_can_be_closed_and_offsets_map_back(text: str) -> None:
    safe, places = NEUTRAL(text)
    assert not re.search(r"(?i)<\s*/?\s*(problem|memory|section)\s*/?>", safe)
    assert not re.search(r"<\|[^|<>\n]+\|>", safe)
    assert NEUTRAL(safe) == (safe, [])
    rebuilt = list(text)
    for place in reversed(places):
        rebuilt.insert(place + 1, JOINER)
    assert "".join(rebuilt) == safe


@pytest.mark.parametrize("unit", ["<", "<|", "< ", "</section ", "[", "<section", "<|a"])
def test_hostile_repetition_is_scanned_in_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        start = time.perf_counter()
        NEUTRAL(text)
        return time.perf_counter() - start

    seconds(1000)
    assert seconds(200_000) < 5.0  # quadratic scanning would take minutes
