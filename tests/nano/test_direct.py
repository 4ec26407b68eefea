import asyncio
from pathlib import Path

import pytest

from memagent.errors import QuestionTooLong
from memagent.messages import ChatRequest
from memagent.models.scripted import ScriptedModel
from memagent.tokens import load_counter
from memagent_nano import direct
from memagent_nano.direct import ANSWER, WINDOW
from memagent_nano.sizes import PICO
from memagent_nano.task import notes


@pytest.mark.parametrize("length", [448, 1792, 20_000])
def test_as_much_of_the_end_as_the_window_takes_is_asked_at_once(
    tokenizers: dict[str, Path], length: int
) -> None:
    sample = notes(family="once", size="pico", length=length).sample(0)
    counter, asked = load_counter(tokenizers["pico"]), list[ChatRequest]()

    def reply(request: ChatRequest) -> str:
        asked.append(request)
        return " 12 "

    model = ScriptedModel(reply, window=WINDOW, counter=counter)
    assert asyncio.run(direct.agent(model, sample)) == "12"
    (request,) = asked
    said = request.messages[0].content
    tokens = counter.count_messages(request.messages) + ANSWER
    document = said.removeprefix("Text: ").split("\nQuestion: ")[0]
    assert sample.context.endswith(document)
    assert f"\nQuestion: {sample.question}\nAnswer:" in said
    assert request.max_tokens == ANSWER
    assert tokens <= WINDOW
    if length == 448:
        assert document == sample.context
    else:
        assert tokens > 0.9 * WINDOW


def test_a_question_that_is_longer_than_the_window_is_refused(
    tokenizers: dict[str, Path],
) -> None:
    model = ScriptedModel(["12"], window=64, counter=load_counter(tokenizers["pico"]))
    sample = notes(family="once", size="pico", length=448).sample(0)
    with pytest.raises(QuestionTooLong, match="window of 64"):
        asyncio.run(direct.agent(model, sample.model_copy(update={"question": "why " * 100})))


def test_lessons_fit_the_window_and_have_their_answers(tokenizers: dict[str, Path]) -> None:
    counter = load_counter(tokenizers["pico"])
    made = list(direct.lessons(PICO, 60, 0))
    assert made == list(direct.lessons(PICO, 60, 0))
    for said, answer in made:
        *names, number = answer.split()
        assert number.isdecimal()
        assert all(one in said for one in (*names, number))
        assert len(names) == 1 + (
            "master" in said.split("Question:")[1] or "works" in said.split("Question:")[1]
        )
        assert counter.count(said) + ANSWER < WINDOW
