"""Samples and evidence as values, and what a task has to offer."""

import pytest
from pydantic import ValidationError

from memagent.tasks import SCORERS, Evidence, Sample, Task

SAMPLE = Sample(
    task="niah",
    index=3,
    length=8192,
    tokens=8100,
    context="The key is 7.",
    question="What is the key?",
    outputs=("7",),
    generate=16,
    before="Read:\n",
    after="\nWhich?",
    answer_prefix=" Answer:",
    evidence=(Evidence(start=0, end=13, supports=(0,), notes=("7",)),),
)


class Counting:
    """A task as a user would write one."""

    name = "counting"
    scorer = "number_match"

    @property
    def facts(self) -> dict[str, str | int | bool]:
        return {"haystack": "none"}

    def sample(self, index: int) -> Sample:
        return SAMPLE.model_copy(update={"index": index})


def test_the_one_shot_prompt_is_what_stands_around_the_document_and_the_document() -> None:
    assert SAMPLE.prompt == "Read:\nThe key is 7.\nWhich? Answer:"


def test_a_sample_goes_through_json_unchanged() -> None:
    assert Sample.model_validate_json(SAMPLE.model_dump_json()) == SAMPLE


def test_a_long_document_is_not_part_of_what_is_shown_of_a_sample() -> None:
    assert "The key is 7." not in repr(SAMPLE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("index", -1), ("length", 0), ("tokens", 0), ("outputs", ()), ("generate", 0), ("extra", 1)],
)
def test_impossible_samples_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Sample.model_validate(SAMPLE.model_dump() | {name: value})


def test_samples_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SAMPLE.question = "another"  # pyright: ignore[reportAttributeAccessIssue]


def test_any_class_of_that_shape_is_a_task() -> None:
    task: Task = Counting()
    sample = task.sample(5)
    assert sample.index == 5
    assert SCORERS[task.scorer]("It is 7.", sample.outputs) == 1
