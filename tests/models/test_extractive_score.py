import pytest

from memagent_engines.extractive_score import Question

WHEN = Question.parse("When did Natasha marry?")


def test_content_words_are_weighed() -> None:
    question = Question.parse("What is the name of Prince Andrew's magnificent dog?")
    assert set(question.weights) == {"nam", "princ", "andrew", "magnificent", "dog"}
    assert question.weights["andrew"] > question.weights["dog"] > question.weights["nam"]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("When did it begin?", "when"),
        ("In which year was he born?", "when"),
        ("Where is it?", "where"),
        ("Whom did she marry?", "who"),
        ("How many men came?", "number"),
        ("Why did he go?", "why"),
        ("What did he say?", ""),
    ],
)
def test_what_is_asked_for(text: str, asks: str) -> None:
    assert Question.parse(text).asks == asks


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # more distinct words of the question
        ("Natásha married early.", "Natasha, Natasha, Natasha came."),
        # case, accents and endings do not matter
        ("NATÁSHA’S marriage was early.", "Natasha was early."),
        # the kind of thing that is asked for
        ("Natasha married in the spring of 1813.", "Natasha married with some reluctance."),
        # short sentences
        ("Natasha married.", "Natasha married " + "and so on " * 40 + "."),
        # words that stand together
        ("Natasha married and he left for the war again.", "Natasha left for the war and he again married."),
        # statements
        ("So Natasha is to marry.", "So Natasha is to marry?"),
    ],
)  # fmt: skip
def test_what_makes_a_sentence_better(better: str, worse: str) -> None:
    assert WHEN.score(better) > WHEN.score(worse) > 0


def test_no_match_is_zero() -> None:
    assert WHEN.score("Nothing of that kind in 1813.") == 0
    assert WHEN.score("") == 0
    assert Question.parse("Who was it?").score("It was he.") == 0
    assert Question.parse("").score("anything") == 0


def test_a_score_is_the_same_in_every_process() -> None:
    # 1e16 + 1 rounds to 1e16, so the sum depends on the order of its terms.
    words = [f"{letter}ok" for letter in "bcdfghjklmnpqrstvwxz"]
    question = Question(weights=dict.fromkeys(words, 1.0) | {words[0]: 1e16}, asks="")
    assert question.score(" ".join(words)) == 1.5e16
