"""What a tool session resolves before its first call: settings that are wrong say so, and how to help."""

import asyncio
from typing import Any

import pytest
from tests.run.heard import session, temporary

from memagent.errors import ConfigError, WindowUnknown
from memagent.messages import Sampling
from memagent.models.scripted import ScriptedModel
from memagent.prompts.neutral import JOINER
from memagent.prompts.session import SessionPrompts
from memagent.session.plan import ToolPlan, ToolSettings
from memagent.tokens.byte_bound import ByteBound
from memagent.tools import Toolset, tool
from memagent.tools.protocol import FORM

PROMPTS = SessionPrompts.load()


def look(item: int) -> str:
    """Looks at an item."""
    return f"item {item}"


def plan(task: Any = "Find it.", window: int | None = None, **settings: Any) -> ToolPlan:
    return ToolPlan.make(
        task,
        ToolSettings.choose({}, **settings),
        PROMPTS,
        Toolset([look]),
        model=ScriptedModel([], name="m"),
        counter=ByteBound(),
        window=window,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("working_context", 0),
        ("working_context", "many"),
        ("working_context", 1.5),
        ("working_context", "4096"),
        ("max_steps", 0),
        ("max_summaries", -1),
        ("summary_tokens", 0),
        ("protocol", "xml"),
        ("instructions", b"bytes"),
        ("instructions", "half \ud800"),
        ("early", 0),
        ("early", 1),
        ("early", float("nan")),
        ("sampling", "hot"),
        ("seed", "s"),
    ],
)
def test_settings_that_cannot_be_are_named_with_their_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        ToolSettings.choose({}, **{name: value})
    assert str(error.value).startswith(name)
    assert str(error.value).endswith(f", got {value!r}")


def test_what_is_not_given_is_the_default() -> None:
    assert ToolSettings.choose({}, max_steps=None, early=None) == ToolSettings()
    assert ToolSettings.choose({}, max_summaries=0).max_summaries == 0


@pytest.mark.parametrize("task", ["", " \n", None, 42, b"Find it.", ["Find it."], "half \ud800"])
def test_a_task_that_is_no_text_is_refused(task: Any) -> None:
    with pytest.raises(ConfigError) as error:
        plan(task, window=8192)
    assert repr(task) in str(error.value)


def test_a_long_task_that_is_no_text_is_not_quoted_whole() -> None:
    with pytest.raises(ConfigError) as error:
        plan("x" * 10_000 + "\ud800", window=8192)
    assert "surrogate" in str(error.value)
    assert len(str(error.value)) < 1000


def test_the_working_context_is_the_smaller_of_window_and_default() -> None:
    assert plan(window=4096).window == 4096
    assert plan(window=131_072).window == 8192
    assert plan(window=131_072, working_context=65_536).window == 65_536
    assert plan(window=None, working_context=512).window == 512
    with pytest.raises(WindowUnknown, match="working_context="):
        plan(window=None)
    with pytest.raises(ConfigError, match="working_context=8192 exceeds the 4096"):
        plan(window=4096, working_context=8192)


def test_the_prompt_is_the_frame_the_instructions_and_the_task() -> None:
    system, user = plan("Find <summary>it</summary>.", 8192, instructions="Be brief.").prompt
    assert (system.role, user.role) == ("system", "user")
    assert system.content.endswith("\n\nBe brief.")
    assert user.content == f"Find <{JOINER}summary>it<{JOINER}/summary>."
    assert '"look"' not in system.content


def test_the_text_protocol_shows_the_tools_and_how_they_are_called() -> None:
    made = plan(window=8192, protocol="text")
    system = made.prompt[0].content
    for part in ('"look"', '"read_archived"', FORM):
        assert part in system


async def test_the_buffer_offers_read_archived_beside_the_users_tools() -> None:
    made = plan(window=16_384, working_context=16_384)
    log, _ = session(await asyncio.to_thread(temporary))
    buffer = made.buffer(ScriptedModel([], window=None), log)
    async with buffer:
        await buffer.open(made.prompt)
        assert [spec.name for spec in buffer.tools] == ["look", "read_archived"]
        assert buffer.archive_tool.name == "read_archived"


def test_a_run_is_bound_to_what_shapes_it() -> None:
    base = plan(window=8192).binding()
    same = plan(window=8192, max_steps=5, max_summaries=1).binding()
    assert same == base
    changes: list[dict[str, Any]] = [
        {"protocol": "text"}, {"instructions": "Be brief."}, {"early": 0.5}, {"seed": 1},
        {"summary_tokens": 900}, {"working_context": 8000}, {"sampling": Sampling(temperature=0)},
    ]  # fmt: skip
    for change in changes:
        assert plan(window=8192, **change).binding() != base
    assert plan("Find me.", 8192).binding() != base
    other = Toolset([tool(look, idempotent=True)])
    settings = (ToolSettings(), PROMPTS)
    model = ScriptedModel([], name="m")
    known: dict[str, Any] = {"model": model, "counter": ByteBound(), "window": 8192}
    made = ToolPlan.make("Find it.", *settings, other, **known).binding()
    assert {key for key in base if made[key] != base[key]} == {"tools"}
