import json
import math
from collections.abc import Callable
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, ConfigDict, Field

from memagent.errors import BadArguments, ConfigError
from memagent.tools.signature import Signature, summary


class Order(Enum):
    NEWEST = "newest"
    OLDEST = "oldest"


class Range(BaseModel):
    title: str = "all"
    pages: list[int] = [1]


class Opaque:
    """Pydantic knows nothing of it."""


def call(function: Callable[..., Any], **arguments: Any) -> Any:
    return Signature.of(function).bind(arguments)()


def everything(
    query: str,
    order: Order = Order.NEWEST,
    where: Range = Range(),  # noqa: B008
    mode: Literal["a", "b"] = "a",
    since: date | None = None,
    tags: Optional[list[str]] = None,  # noqa: UP045
    schema: int = 0,
    _hidden: int = 0,
    model_config: int = 0,
) -> tuple[Any, ...]:
    return query, order, where, mode, since, tags, schema, _hidden, model_config


def test_arguments_become_what_the_hints_say() -> None:
    given = call(
        everything,
        query="fog",
        order="oldest",
        where={"pages": ["2"]},
        mode="b",
        since="2026-01-02",
        tags=["x"],
        schema=1,
        _hidden=2,
        model_config=3,
    )
    where = Range(pages=[2])
    assert given == ("fog", Order.OLDEST, where, "b", date(2026, 1, 2), ["x"], 1, 2, 3)


def test_defaults_are_the_functions_own() -> None:
    assert call(everything, query="fog") == (
        *("fog", Order.NEWEST, Range(), "a", None, None),
        *(0, 0, 0),
    )


def test_a_default_that_is_a_list_is_not_shared_by_calls() -> None:
    def collect(into: list[int] = []) -> list[int]:  # noqa: B006
        into.append(1)
        return into

    assert call(collect) == [1]
    assert call(collect) == [1]


def test_the_schema_has_no_titles_but_keeps_parameters_of_that_name() -> None:
    def find(title: str, where: Range) -> None: ...

    schema: Any = Signature.of(find).schema
    assert schema["properties"] == {"title": {"type": "string"}, "where": {"$ref": "#/$defs/Range"}}
    assert schema["required"] == ["title", "where"]
    assert schema["$defs"]["Range"] == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "default": "all"},
            "pages": {"type": "array", "items": {"type": "integer"}, "default": [1]},
        },
    }


def test_descriptions_come_from_the_annotation_or_the_docstring() -> None:
    def find(
        query: Annotated[str, Field(description="from the annotation", max_length=5)], limit: int
    ) -> None:
        """Finds.

        Args:
            query: from the docstring.
            limit: from the docstring.
        """

    properties: Any = Signature.of(find).schema["properties"]
    assert properties["query"] == {
        "type": "string",
        "description": "from the annotation",
        "maxLength": 5,
    }
    assert properties["limit"]["description"] == "from the docstring."
    with pytest.raises(BadArguments, match=r"- query: .*at most 5"):
        call(find, query="abcdef", limit=1)


def test_a_field_in_place_of_a_default_is_the_field() -> None:
    def find(
        query: str = Field(description="what"),
        most: Annotated[int, Field(le=9)] = Field(5, ge=1),
        tags: list[str] = Field(default_factory=lambda: ["all"]),  # noqa: B008
    ) -> tuple[Any, ...]:
        return query, most, tags

    schema: Any = Signature.of(find).schema
    assert schema["required"] == ["query"]
    assert schema["properties"]["query"]["description"] == "what"
    assert call(find, query="fog") == ("fog", 5, ["all"])
    for most in (0, 10):
        with pytest.raises(BadArguments, match=r"- most: .*equal to"):
            call(find, query="fog", most=most)


def test_a_parameter_whose_default_is_none_takes_null_whatever_its_hint() -> None:
    # Wrong hints, which people write all the same.
    def plain(
        number: int = None,  # type: ignore[assignment]  # noqa: RUF013
        name: Annotated[str, Field(description="its name")] = None,  # type: ignore[assignment]  # noqa: RUF013
        size: int = Field(None, gt=0),  # type: ignore[arg-type]
        order: Order | str = None,  # type: ignore[assignment]
        extra: Any = None,
        said: int | None = None,
    ) -> tuple[Any, ...]:
        return number, name, size, order, extra, said

    nothing: dict[str, Any] = dict.fromkeys(("number", "name", "size", "order", "extra", "said"))
    assert call(plain, **nothing) == call(plain) == (None,) * 6
    assert call(plain, number="3", name="a", size=1)[:3] == (3, "a", 1)
    with pytest.raises(BadArguments, match="size: Input should be greater than 0"):
        call(plain, size=0)
    properties: Any = Signature.of(plain).schema["properties"]
    null = {"type": "null"}
    assert properties["number"] == {"anyOf": [{"type": "integer"}, null], "default": None}
    assert properties["said"] == properties["number"]
    assert properties["extra"] == {"default": None}
    assert properties["name"]["description"] == "its name"


def test_a_default_without_a_json_form_is_left_out_of_the_schema() -> None:
    def find(at: Any = Opaque()) -> None: ...  # noqa: B008

    assert json.dumps(Signature.of(find).schema["properties"]) == '{"at": {}}'

    def far(most: float = math.inf) -> float:
        return most

    assert "Infinity" not in json.dumps(Signature.of(far).schema)
    assert call(far) == math.inf


def test_strict_types_take_what_the_schema_allows() -> None:
    class Booking(BaseModel):
        model_config = ConfigDict(strict=True)
        day: date

    def book(booking: Booking) -> date:
        return booking.day

    assert call(book, booking={"day": "2026-01-02"}) == date(2026, 1, 2)
    with pytest.raises(BadArguments, match="day"):
        call(book, booking={"day": "soon"})


def test_parameters_by_place_alone_are_given_by_place() -> None:
    def divide(a: float, b: float, /, *, digits: int = 2) -> float:
        return round(a / b, digits)

    assert call(divide, a=1, b=3, digits=1) == 0.3


def test_hints_that_are_texts_are_resolved() -> None:
    def find(at: "Order", path: "Path | None" = None) -> Any:
        return at, path

    assert call(find, at="newest", path="a/b") == (Order.NEWEST, Path("a/b"))


class Bound:
    def method(self, word: str) -> str:
        return word


def test_a_method_does_not_show_its_self() -> None:
    assert list(Signature.of(Bound().method).signature.parameters) == ["word"]


def no_hint(word) -> None: ...
def stars(*words: str) -> None: ...
def double_stars(**words: str) -> None: ...
def unresolvable(good: str, word: "Nowhere") -> None: ...  # noqa: F821 # pyright: ignore[reportUndefinedVariable]
def opaque(good: str, word: Opaque) -> None: ...
def calls(good: str, word: Callable[[], int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (no_hint, r"no_hint: parameter 'word' has no type hint; add one, such as word: str"),
        (stars, r"stars: '\*words' cannot be described to a model; name each parameter"),
        (double_stars, r"double_stars: '\*\*words' cannot be described to a model; name each"),
        (unresolvable, r"unresolvable: .*'Nowhere' of its parameter 'word' .* top level"),
        (
            opaque,
            r"opaque: .* parameter 'word' cannot be described .*; use a type that has a JSON form",
        ),
        (calls, r"calls: .* parameter 'word' cannot be described"),
        (print, r"print: .*\*args"),
        (dict.update, r"update has no readable signature; wrap it in a function"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_model_cannot_be_told_of_is_refused(function: Callable[..., Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Signature.of(function)


def test_a_model_is_told_each_wrong_argument_on_a_line() -> None:
    def find(query: str, where: Range, limit: int) -> None: ...

    with pytest.raises(BadArguments) as caught:
        call(find, limit="many", where={"pages": [1, "x"]}, word="fog")
    first, *lines, last = str(caught.value).splitlines()
    assert first == "the arguments do not fit:"
    assert lines == [
        "- query: missing",
        "- where.pages.1: Input should be a valid integer, unable to parse string as an integer, not 'x'",
        "- limit: Input should be a valid integer, unable to parse string as an integer, not 'many'",
        "- word: there is no such argument; those there are: query, where, limit",
    ]
    assert last.startswith('Expected: {"$defs"')


def test_what_a_model_is_told_is_short_whatever_it_wrote() -> None:
    def find(pages: list[int], word: Literal["a"] = "a") -> None: ...

    with pytest.raises(BadArguments) as caught:
        call(find, pages=["x" * 1_000_000, *["x"] * 4999], **{"y" * 1_000_000: 1})
    assert len(str(caught.value)) < 6000
    assert "- and 4991 more" in str(caught.value)


# --- what a docstring says


def full(query: str, limit: int, mode: str, rest: str) -> None:
    """Searches the pages
    for a word.

    More about it, which is not the summary.

    Args:
        query: what to look for:
            a word, or several.
        limit (int, optional): most results.

        mode (Literal["a", "b"]):
            Which one.
        rest: the others

    Returns:
        results: not a parameter.
    """


def only_arguments(a: int) -> None:
    """Args:
    a: one.
    """


def bare(a: int) -> None:
    pass


def described(function: Callable[..., Any]) -> dict[str, str | None]:
    properties: Any = Signature.of(function).schema["properties"]
    return {name: about.get("description") for name, about in properties.items()}


def test_the_first_paragraph_is_the_summary() -> None:
    assert summary(full) == "Searches the pages for a word."


def test_each_parameter_is_described() -> None:
    assert described(full) == {
        "query": "what to look for: a word, or several.",
        "limit": "most results.",
        "mode": "Which one.",
        "rest": "the others",
    }


def test_no_docstring_says_nothing() -> None:
    assert (summary(bare), described(bare)) == ("", {"a": None})


def test_a_docstring_without_a_summary_has_none() -> None:
    assert summary(only_arguments) == ""
