import asyncio

import pytest

from memagent import MemoryAgent, ScriptedModel
from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Completion, Message
from memagent.models.base import Wrapper
from memagent_train.roles import NO_ROLE, ROLE, Role, role

ASKED = ChatRequest(messages=(Message(role="user", content="Who?"),), max_tokens=5)


class Listener(Wrapper):
    """Hears the role of each call."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(lambda request: f"{request.kind}.", window=2048))
        self.heard: list[Role] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.heard.append(ROLE.get())
        await asyncio.sleep(0)
        return await self.inner.complete(request)


async def test_calls_are_made_in_a_role_and_others_are_not() -> None:
    model = Listener()
    planner = role(model, "planner")
    await planner.complete(ASKED)
    await model.complete(ASKED)
    assert model.heard == [Role("planner"), NO_ROLE]
    assert planner.name == model.name
    assert await planner.window() == 2048


async def test_concurrent_roles_keep_apart() -> None:
    model = Listener()
    roles = [role(model, name, train=name == "a") for name in "abc"]
    await asyncio.gather(*(one.complete(ASKED) for one in roles for _ in range(3)))
    assert model.heard == [Role(name, name == "a") for name in "aaabbbccc"]


async def test_an_agent_works_in_a_role() -> None:
    model = Listener()
    agent = MemoryAgent(role(model, "reader"), store=None)
    await agent.aask("The prince left. " * 100, "Who left?")
    await agent.aclose()
    assert set(model.heard) == {Role("reader")}


async def test_a_role_is_left_after_an_error() -> None:
    failing = role(ScriptedModel([]), "planner")
    with pytest.raises(Exception, match="replies"):
        await failing.complete(ASKED)
    assert ROLE.get() == NO_ROLE


async def test_a_new_role_replaces_the_old_one() -> None:
    model = Listener()
    await role(role(model, "planner"), "critic", train=False).complete(ASKED)
    assert model.heard == [Role("critic", train=False)]


def test_a_role_has_a_name() -> None:
    with pytest.raises(ConfigError, match="' '"):
        role(Listener(), " ")
