"""Counting with a tokenizer.json from disk."""

import gzip
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from memagent.errors import TokenizerError
from memagent.messages import Message
from memagent.tokens import TokenizerFile
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE

FOLDER = Path(__file__).parents[1] / "data" / "tokenizer"
TALK = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="Whom does Natasha marry?"),
]


def edited(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "tokenizer.json"
    shutil.copy(FOLDER / "tokenizer.json", path)
    return edited_file(path, **changes)


def edited_file(path: Path, **changes: Any) -> Path:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return path


def added(content: str, **flags: Any) -> dict[str, Any]:
    plain = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    return {"id": 1999, "content": content, **plain, **flags}


def test_folder_file_and_gzip_are_the_same_counter(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "tokenizer.json.gz", "wb") as file:
        file.write((FOLDER / "tokenizer.json").read_bytes())
    shutil.copy(FOLDER / "tokenizer_config.json", tmp_path)
    counters = [
        TokenizerFile(p)
        for p in (FOLDER, FOLDER / "tokenizer.json", tmp_path, tmp_path / "tokenizer.json.gz")
    ]
    assert len({counter.name for counter in counters}) == 1
    assert {counter.count("Prince Andrew rode on.") for counter in counters} == {
        counters[0].count("Prince Andrew rode on.")
    }


def test_names_follow_the_content_and_not_the_place(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "moved")
    moved = tmp_path / "moved"
    assert TokenizerFile(moved).name == TokenizerFile(FOLDER).name
    assert str(tmp_path) not in TokenizerFile(moved).name
    (moved / "chat_template.jinja").write_text("{{ messages }}")
    assert TokenizerFile(moved).name != TokenizerFile(FOLDER).name


def test_truncation_padding_and_added_ends_do_not_count(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = "It was in July, 1805, and the speaker was the well-known Anna Pavlovna."
    assert TokenizerFile(tmp_path).count(text) == TokenizerFile(FOLDER).count(text) > 4
    assert TokenizerFile(tmp_path).count("a") == 1


def test_control_tokens_are_one_token_each() -> None:
    counter = TokenizerFile(FOLDER)
    assert counter.control_tokens == {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}
    assert counter.count("<|im_end|>") == 1
    assert counter.count("<\u2060|im_end|>") > 3


def test_added_tokens_that_look_like_markup_steer_too_white_space_does_not(tmp_path: Path) -> None:
    tokens = [
        added("<think>"),
        added("[INST]"),
        added("  ", special=True),
        added("word"),
        added("<<", special=False),
        added("end", special=True),
    ]
    tokens = [{**token, "id": 2000 + i} for i, token in enumerate(tokens)]
    assert TokenizerFile(edited(tmp_path, added_tokens=tokens)).control_tokens == {
        "<think>",
        "[INST]",
        "end",
    }


def warned(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "memagent"):
        TokenizerFile(path)
    return [record.getMessage() for record in caplog.records]


def test_control_tokens_that_no_joiner_breaks_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned(FOLDER, caplog) == []
    strip = {"type": "Replace", "pattern": {"String": "\u2060"}, "content": ""}
    tokens = [
        {**added("<one>", normalized=True), "id": 2000},
        {**added("<two>", normalized=True), "id": 2001},
        {**added("<raw>"), "id": 2002},  # looked for before the text is normalised
    ]
    (warning,) = warned(edited(tmp_path, normalizer=strip, added_tokens=tokens), caplog)
    assert "'<one>', '<two>' as control tokens" in warning
    assert "promise 6" in warning
    assert "<raw>" not in warning
    assert warned(edited(tmp_path, added_tokens=tokens), caplog) == []


def test_control_tokens_of_one_character_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (warning,) = warned(edited(tmp_path, added_tokens=[added("§", special=True)]), caplog)
    assert "'§'" in warning


VOCABULARY = {"[UNK]": 0, "[CLS]": 1}


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece(VOCABULARY, unk_token="[UNK]"),
        models.BPE(VOCABULARY, [], unk_token="[UNK]"),
        models.WordLevel(VOCABULARY, unk_token="[UNK]"),
        models.Unigram([("[UNK]", 0.0), ("[CLS]", 0.0)], 0, False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_unknown_token_is_no_way_to_write_itself(
    model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(["[UNK]", "[CLS]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert warned(tmp_path, caplog) == []


def test_a_tokenizer_that_lacks_its_own_unknown_token_is_refused(tmp_path: Path) -> None:
    Tokenizer(models.WordPiece(unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    path = edited_file(tmp_path / "tokenizer.json", added_tokens=[added("<s>")])
    with pytest.raises(TokenizerError, match=r"cannot tokenise every text.*\[UNK\]"):
        TokenizerFile(path)


@pytest.mark.parametrize(
    "model",
    [models.WordLevel({"a": 0}, "?"), models.Unigram([("a", 0.0)])],
    ids=["words", "pieces"],
)
def test_a_word_that_a_tokenizer_cannot_read_is_named_when_it_occurs(
    model: Any, tmp_path: Path
) -> None:
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    counter = TokenizerFile(tmp_path)
    assert counter.count("a") == 1
    with pytest.raises(TokenizerError, match=r"tokenizer\.json' cannot tokenise every text"):
        counter.count("b")


def test_settings_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(TokenizerError, match="cannot be read"):
        TokenizerFile(tmp_path)


def test_a_file_without_a_pre_tokenizer_is_loaded(tmp_path: Path) -> None:
    content = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
    del content["pre_tokenizer"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    counter = TokenizerFile(tmp_path)
    assert counter.measure("Some text.").tokens_of_prefix(4) == counter.count("Some")


def test_messages_are_counted_as_the_template_renders_them() -> None:
    counter = TokenizerFile(FOLDER)
    rendered = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhom does Natasha marry?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert counter.count_messages(TALK) == counter.count(rendered)


def test_without_a_template_messages_have_an_upper_bound(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "tokenizer.json", tmp_path)
    counter = TokenizerFile(tmp_path)
    contents = sum(counter.count(m.content) for m in TALK)
    assert counter.count_messages(TALK) == contents + 2 * MESSAGE_ALLOWANCE + REQUEST_ALLOWANCE
    assert counter.count_messages(TALK) > TokenizerFile(FOLDER).count_messages(TALK)


@pytest.mark.parametrize(
    "text", ["日本語のテキスト、" * 40, "👩‍👩‍👧 ok " * 30, "e\u0301 it was " * 40]
)
def test_cuts_by_text_and_by_offsets_agree(tmp_path: Path, text: str) -> None:
    by_text = TokenizerFile(FOLDER)
    content = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
    content["decoder"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    by_offsets = TokenizerFile(tmp_path)
    assert by_text.count(text) == by_offsets.count(text)
    for limit in range(0, by_text.count(text), 5):
        chars = [counter.measure(text).chars_within(limit) for counter in (by_text, by_offsets)]
        assert abs(chars[0] - chars[1]) <= 1


def test_surrogates_are_counted_as_what_replaces_them() -> None:
    counter = TokenizerFile(FOLDER)
    assert counter.count("a\ud800b") == counter.count("a\ufffdb")
    assert counter.measure("a\ud800b").tokens_of_prefix(2) == counter.count("a\ufffd")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b'{"model": {"type": "Nothing"}}', b"\x1f\x8bbroken"]
)
def test_files_that_are_no_tokenizer_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        TokenizerFile(tmp_path)


def test_a_folder_without_one_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="save_pretrained"):
        TokenizerFile(tmp_path)
    with pytest.raises(TokenizerError, match="no tokenizer at"):
        TokenizerFile(tmp_path / "gone")


def test_what_a_template_writes_instead_of_reasoning_is_counted(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "tokenizer.json", tmp_path)
    template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    )
    (tmp_path / "chat_template.jinja").write_text(template)
    counter = TokenizerFile(tmp_path)
    text = "".join(message.content for message in TALK)
    assert counter.count_messages(TALK) == counter.count(text)
    assert counter.count_messages(TALK, thinking=True) == counter.count(text)
    assert counter.count_messages(TALK, thinking=False) == counter.count(f"{text}<think></think>")
