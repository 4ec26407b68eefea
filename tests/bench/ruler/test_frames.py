"""The wording is data, checked when it is read."""

from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import Result

from memagent.errors import ConfigError
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.cwe import CweTask
from memagent_bench.ruler.frames import Frames, Niah, Qa, load_frames
from memagent_bench.ruler.vt import VtTask

SHIPPED = (
    resources.files("memagent_bench.ruler").joinpath("frames.toml").read_text(encoding="utf-8")
)


def changed(tmp_path: Path, old: str, new: str) -> Path:
    assert SHIPPED.count(old) >= 1
    path = tmp_path / "mine.toml"
    path.write_text(SHIPPED.replace(old, new, 1), encoding="utf-8")
    return path


def test_the_shipped_wording_is_not_the_published_one() -> None:
    for words in ("special magic", "The grass is green", "memorize", "Paul Graham"):
        assert words not in SHIPPED


def test_wording_is_named_by_content(tmp_path: Path) -> None:
    frames = load_frames(None)
    assert frames.wording == f"memagent:{frames.hash}"
    assert len(frames.hash) == 16
    other = load_frames(changed(tmp_path, "The road is long.", "The road is short."))
    assert other.hash != frames.hash
    assert other.table(Niah).noise.startswith("The road is short.")


def test_line_ends_and_marks_change_nothing() -> None:
    windows = b"\xef\xbb\xbf" + SHIPPED.replace("\n", "\r\n").encode()
    assert Frames.parse(windows, "x").hash == load_frames(None).hash


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ("{key} is {value}.", "{key} is it.", "niah.needle", "{value} is missing"),
        ("{key} is {value}.", "{key} is {value} {no}.", "niah.needle", "unknown field {no}"),
        ("{key} is {value}.", "{key} is {value!r}.", "niah.needle", "unknown field {value!r}"),
        ("{key} is {value}.", "{key} is {value:>9}.", "niah.needle", "unknown field {value:>9}"),
        ("{key} is {value}.", "{key.x} is {value}.", "niah.needle", "unknown field {key.x}"),
        ("{key} is {value}.", "{} is {value}.", "niah.needle", "unknown field {}"),
        ("{key} is {value}.", "{key is {value}.", "niah.needle", ""),
        ("VAR {name} = VAR {source} ", "VAR {name}", "vt.copy", "{source} is missing"),
        ('noise = "The', 'noise = "{x} The', "niah.noise", "unknown field {x}"),
        ('uuids = { one = "identifier", ', "uuids = { ", "niah.kinds.uuids.one", "required"),
        ("[fwe]", "[few]", "few", "not permitted"),
    ],
)
def test_a_wrong_template_is_named(
    tmp_path: Path, old: str, new: str, where: str, what: str
) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(ConfigError) as caught:
        load_frames(path)
    assert f"{str(path)!r}, {where}: " in str(caught.value)
    assert what.lower() in str(caught.value).lower()


def test_a_file_needs_the_tables_of_its_tasks_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[vt]' + SHIPPED.partition("[vt]")[2].partition("[cwe]")[0])
    options = DataOptions(counter=length_counter(None), frames=path)
    sample = VtTask(1024, options).sample(0)
    assert sample.prompt == VtTask(1024, replace(options, frames=None)).sample(0).prompt
    with pytest.raises(ConfigError, match=r"'mine' has no table \[cwe\].*--print-frames"):
        CweTask(1024, options)


def test_the_shipped_file_is_printed(invoke: Callable[..., Result]) -> None:
    done = invoke("generate", "--print-frames")
    assert (done.exit_code, done.stdout) == (0, SHIPPED)


def test_a_prefix_may_be_left_out(tmp_path: Path) -> None:
    prefix = 'answer_prefix = "\\nAnswer:"\n'
    assert load_frames(changed(tmp_path, prefix, "")).table(Qa).answer_prefix == ""


def test_braces_are_written_twice(tmp_path: Path) -> None:
    path = changed(tmp_path, "Take note: one", "{{Note}}: one")
    needle = load_frames(path).table(Niah).needle.format(kind="x", kinds="xs", key="k", value="v")
    assert needle.startswith("{Note}: one")


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"not toml", b"a = " + b"[" * 5000])
def test_what_is_no_toml_is_named(raw: bytes) -> None:
    with pytest.raises(ConfigError, match=r"'mine\.toml' is not TOML"):
        Frames.parse(raw, "mine.toml")


@pytest.mark.parametrize("name", ["none.toml", ".", "\0"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no wording at"):
        load_frames(tmp_path / name)


def test_a_query_of_several_keys_reads_as_a_sentence() -> None:
    niah = load_frames(None).table(Niah)
    assert niah.query(["a"]) == "a"
    assert niah.query(["a", "b"]) == "a, and b"
    assert niah.query(["a", "b", "c"]) == "a, b, and c"
