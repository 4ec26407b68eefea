import pytest
from pydantic import ValidationError

from memagent.messages import ChatRequest, Completion, Message, Sampling, Usage


def test_usages_add_up_field_by_field() -> None:
    one = Usage(**{name: place for place, name in enumerate(Usage.model_fields, start=1)})
    total = one + one
    assert total.model_dump() == {name: 2 * value for name, value in one.model_dump().items()}
    assert Usage() + one == one


def test_values_do_not_change_and_take_no_unknown_fields() -> None:
    message = Message(role="user", content="hi")
    with pytest.raises(ValidationError):
        message.content = "ho"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Message(role="user", content="hi", name="x")  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Message(role="wizard", content="hi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": float("inf")},  # JSON has no such number, so no record could hold it
        {"top_p": 0},
        {"top_p": 1.1},
    ],
)
def test_sampling_is_checked(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Sampling(**fields)  # type: ignore[arg-type]


def test_a_request_needs_room_for_an_output() -> None:
    with pytest.raises(ValidationError):
        ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=0)


def test_values_survive_json() -> None:
    completion = Completion(text="a\u2060b", usage=Usage(calls=1), reasoning="r")
    assert Completion.model_validate_json(completion.model_dump_json()) == completion
