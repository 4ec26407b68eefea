"""Quotes: which sentences of a document share the words of an answer."""

from __future__ import annotations

import random
import textwrap
import unicodedata
from pathlib import Path

import pytest
from tests.formats import made
from tests.growth import growth

from memagent import MemoryAgent, Result, ScriptedModel, open_document
from memagent.documents import PIECE_CHARS
from memagent.errors import DocumentRequired, RunMismatch
from memagent.quotes import Quote, align, split
from memagent.threads import run_sync

TEXT = (
    "Anna rents the red boat every\nsummer. Ben does not like the sea.\n\n"
    "The boat costs 40 a day, which Anna finds too much. They go home in August."
)


def quotes(text: str, said: str) -> list[Quote]:
    return run_sync(align(open_document(text), [said]))


def test_a_sentence_of_the_document_is_found_word_for_word() -> None:
    (found,) = quotes(TEXT, "anna rents the red boat every summer")
    assert found.text == "Anna rents the red boat every\nsummer."
    assert found.score == 1
    assert TEXT[found.start : found.end].strip() == found.text


def test_other_words_and_another_order_score_less() -> None:
    (exact, fuzzy, other) = quotes(
        TEXT, "They go home in August. A day costs Anna 40. Whales sing."
    )
    assert exact.score == 1
    assert fuzzy.text.startswith("The boat costs 40 a day")
    assert 0.5 <= fuzzy.score < 1
    assert (other.text, other.score, other.sentence) == ("", 0, "Whales sing.")


@pytest.mark.parametrize(
    "said", ["3 people died in the fire of 187.", "The repair costs 23.", "He is here."]
)
def test_a_part_of_a_word_is_another_word(said: str) -> None:
    text = "In all 13 people died in the fire of 1871. The repair costs 2300 euros. She is here."
    (found,) = quotes(text, said)
    assert found.score < 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_row_is_quoted_by_itself(end: str) -> None:
    names = ["Ann", "Bob", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon", "Kim", "Leo"]
    table = end.join(["name,owes", *(f"{name},{n}00" for n, name in enumerate(names, 1))])
    log = end.join(
        f"INFO server{n:03} {'down' if n == 7 else 'up'} disk {n:050}" for n in range(90)
    )
    for text in (table, log, f"The list.\n\n{table}\n\n{log}"):
        for said in ("Ann owes 700.", "INFO server008 down"):
            (found,) = quotes(text, said)
            assert found.score < 0.8
            assert len(found.text.splitlines()) < 2
    (found,) = quotes(table, "Gus,700")
    assert (found.text, found.score) == ("Gus,700", 1)
    assert table[found.start : found.end].strip() == "Gus,700"


@pytest.mark.parametrize("width", [50, 80])
def test_a_sentence_may_be_wrapped_before_a_name(width: int) -> None:
    sentence = "Ms Okafor of Leeds and Mr Brown of York reset the Boiler of the House in May. "
    text = textwrap.fill(
        f"Anna rents the boat. {sentence * 20}The Lift of Ann Lee costs 900 Euros in All, the Owner says.",
        width,
    )
    for said in (sentence, "The Lift of Ann Lee costs 900 Euros in All, the Owner says."):
        (found,) = quotes(text, said)
        assert found.score == 1


def test_rare_words_count_more() -> None:
    text = (
        "The cat is in the house of the man. " * 30
        + "Zebras eat grass. "
        + "The dog is in it. " * 30
    )
    (found,) = quotes(text, "Zebras in the house.")
    assert found.text == "Zebras eat grass."


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("下一次检修是三月。", "下一次检修在三月。"),
        ("次の点検は三月になります。", "次の点検は三月です。"),
        ("Das Café ist für Élise.", unicodedata.normalize("NFD", "Das Café ist für Élise.")),
    ],
)
def test_signs_are_words_and_normal_forms_are_alike(said: str, found: str) -> None:
    (quote,) = quotes(f"维修费用为2300欧元。修理の費用は高い。\n\n{found} More.", said)
    assert quote.text == found


@pytest.mark.parametrize("text", ["", "   ", "...", "\n\n"])
def test_nothing_to_quote(text: str) -> None:
    assert [(q.text, q.score) for q in quotes(TEXT, text)] in ([], [("", 0)])


@pytest.mark.parametrize(
    "text",
    [
        "v1.2 is out... ok?",
        "So:\n 1. a\n12.\nb. \n\n 3. c",
        "“Yes,” he said.” No",
        "私は。そう思う。",
        "a" * 4500,
        ".\n" * 3000,
    ],
)
def test_sentences_give_the_text_back(text: str) -> None:
    assert "".join(split(text)) == text


def test_the_number_of_an_item_belongs_to_it() -> None:
    text = "She needs:\n1. The code is 5.\n2. Ann has it. Or Bob.\n  a. J. Smith\n7.\n1812. War."
    assert [part.strip() for part in split(text)] == [
        *("She needs:", "1. The code is 5.", "2. Ann has it.", "Or Bob.", "a. J. Smith", "7."),
        *("1812.", "War."),
    ]
    items = "1.1. Rent.\n12.3.1. Oars.\n- 2. Sea.\nxiv. Late.\nIX. Soon.\nmix. It.\n"
    assert split(items) == [*items.splitlines(keepends=True)[:-1], "mix. ", "It.\n"]
    (found,) = quotes("In 1. place came Ann.\n\n2. Bob came late.", "2. Bob came late.")
    assert found.text == "2. Bob came late."


@pytest.mark.parametrize(
    "unit", [".", ". ", "\n", "\n \t", ".”", "。", "a\n", "” ", "\n 1. ", "1. ", "- a. "]
)
def test_splitting_is_linear(unit: str) -> None:
    short, long = (unit * size + "x" for size in (20_000, 200_000))
    assert growth(lambda: split(short), lambda: split(long)) < 30


def test_pieces_don_t_matter() -> None:
    """Sentences that lie across two pieces of a stream are whole."""
    draw = random.Random(0)
    filler = "".join(f"Sentence {n} speaks of {draw.random()}. " for n in range(4000))
    text = f"{filler[: PIECE_CHARS - 30]}. The purse of Ada holds 4711 coins. {filler}"
    (found,) = quotes(text, "The purse of Ada holds 4711 coins.")
    assert (found.text, found.score) == ("The purse of Ada holds 4711 coins.", 1)
    assert text[found.start : found.end].strip() == found.text


def test_a_result_quotes_its_document_with_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(made.pdf(["The sea is calm.", "The code is 4812.", "The end."]))
    with MemoryAgent("extractive", store=tmp_path / "runs.sqlite") as agent:
        result = agent.ask(path, "What is the code?", run_id="r")
        again = agent.resume("r")
    assert isinstance(again, Result)
    for found in (result.quotes()[0], again.quotes()[0], result.quotes(path)[0]):
        assert (found.text, found.place, found.score) == ("The code is 4812.", "p. 2", 1)
    assert "source" not in result.to_dict()


def test_a_document_that_changed_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("The code is 4812. The end.")
    with MemoryAgent("extractive", store=tmp_path / "runs.sqlite") as agent:
        result = agent.ask(path, "What is the code?")
    path.write_text("The code is 4812. The end. What was added later is no change.")
    assert result.quotes()[0].text == "The code is 4812."
    for other in ("The code was 4812. The end.", "The code is 4812."):
        path.write_text(other)
        with pytest.raises(RunMismatch, match="the document has changed since; give what was read"):
            result.quotes()


def test_a_text_must_be_given_again() -> None:
    with MemoryAgent(ScriptedModel(lambda request: "Anna."), store=None, window=4096) as agent:
        result = agent.ask(TEXT, "Who?")
    with pytest.raises(DocumentRequired, match=r"pass it to quotes\(\) again"):
        result.quotes()
    assert [q.sentence for q in result.quotes(TEXT)] == ["Anna.", "Anna."]


@pytest.mark.parametrize("text", ["राम गया। वह आया॥ सब", "هل ذهب؟ نعم ذهب۔ ثم عاد"])
def test_sentences_end_at_the_stops_of_other_scripts(text: str) -> None:
    assert len(split(text)) == 3
