"""Names for the parts that one policy plays in a rollout, and which of them are trained."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Completion
from memagent.models.base import ChatModel, Wrapper


@dataclass(frozen=True)
class Role:
    """Who makes a call."""

    name: str
    train: bool = True
    """Whether what is sampled in it counts in the loss."""


NO_ROLE = Role("")
"""Of calls without one: they are trained."""
ROLE: ContextVar[Role] = ContextVar("ROLE", default=NO_ROLE)
"""The role of the call under way: how it gets from the agent to whoever records the call."""


def role(model: ChatModel, name: str, *, train: bool = True) -> ChatModel:
    """The same model in a role, for agents that let a policy play several.

    ```python
    async def agent(model, sample):
        plan = await MemoryAgent(role(model, "planner")).aask(sample.context, sample.question)
        check = await MemoryAgent(role(model, "critic", train=False)).aask(
            plan.memory, sample.question
        )
        return check.answer
    ```

    Outside of training it changes nothing. A role given to a model that has one replaces it.

    Args:
        model: what the agent was given.
        name: stands in `Row.role`.
        train: False leaves what is sampled in this role out of the loss.

    Raises:
        ConfigError: the name is empty.
    """
    if not name.strip():
        raise ConfigError(f"the role {name!r} has no name: give one such as 'planner'")
    inner = model.inner if isinstance(model, InRole) else model
    return InRole(inner, Role(name, train))


class InRole(Wrapper):
    """Makes every call in one role.

    Args:
        inner: the model to call.
        part: the role.
    """

    def __init__(self, inner: ChatModel, part: Role) -> None:
        super().__init__(inner)
        self.part = part

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on, in this role."""
        before = ROLE.set(self.part)
        try:
            return await self.inner.complete(request)
        finally:
            ROLE.reset(before)
