"""Names for the roles that one policy plays in a rollout, and which of them are trained."""

from contextvars import ContextVar
from dataclasses import dataclass

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Completion
from memagent.models.base import ChatModel, Wrapper


@dataclass(frozen=True)
class Role:
    """The role that makes a call."""

    name: str
    train: bool = True
    """Whether tokens sampled in this role enter the loss."""


NO_ROLE = Role("")
"""Role of calls without a role of their own; they are trained."""
ROLE: ContextVar[Role] = ContextVar("ROLE", default=NO_ROLE)
"""The role of the current call, passed from the agent to the recorder of the call."""


def role(model: ChatModel, name: str, *, train: bool = True) -> ChatModel:
    """Returns the same model in a role, for agents in which a policy plays several.

    ```python
    async def agent(model, sample):
        plan = await MemoryAgent(role(model, "planner")).aask(sample.context, sample.question)
        check = await MemoryAgent(role(model, "critic", train=False)).aask(
            plan.memory, sample.question
        )
        return check.answer
    ```

    Outside training it has no effect. A new role replaces the model's previous one.

    Args:
        model: the agent's model.
        name: recorded in `Span.role`.
        train: False excludes tokens sampled in this role from the loss.

    Raises:
        ConfigError: the name is empty.
    """
    if not name.strip():
        raise ConfigError(f"the role {name!r} is empty: give a name such as 'planner'")
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
        """Forwards the request, in this role."""
        token = ROLE.set(self.part)
        try:
            return await self.inner.complete(request)
        finally:
            ROLE.reset(token)
