"""RULER's own protocol: its one-shot prompt, with the reply's prefix, and its token limit for the rest of the reply."""

from __future__ import annotations

from memagent.errors import LimitReached
from memagent.messages import ChatRequest, Message, Sampling
from memagent.models.base import ChatModel
from memagent.prompts import UnusableReply
from memagent.prompts.reply import visible
from memagent.tasks import Sample
from memagent_bench.provenance import servers_of
from memagent_bench.systems.asking import agent_of, text_of
from memagent_bench.systems.base import Outcome, Setting, Status

GREEDY = Sampling(temperature=0, top_p=1)


class OneShot:
    """Asks once, with the whole document followed by the question, whatever window is set.

    The answer prefix begins the assistant's turn if the server continues one, and otherwise ends the user's message;
    `Outcome.detail` says which. A reasoning model is asked not to reason: the reply has no room for it.

    Args:
        name: name in `--systems`.
        setting: the benchmark's; of its settings only the seed applies.
    """

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._model, self._agent = setting.model, agent_of(setting, gate="off")

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`.

        Raises:
            ContextOverflow: prompt plus reply exceed the model's window.
            MemagentError: the call failed.
        """
        plan = await self._agent.plan((sample.question,))
        text, prefix = sample.before + await text_of(sample) + sample.after, sample.answer_prefix
        messages = (Message(role="user", content=text + prefix),)
        placement = (
            "answer prefix at the end of the user's message" if prefix else "no answer prefix"
        )
        if prefix and await _continues(self._model):
            begun = Message(role="assistant", content=prefix)
            messages = (Message(role="user", content=text), begun)
            placement = "answer prefix at the beginning of the assistant's turn"
        request = ChatRequest(
            messages=messages,
            max_tokens=sample.generate,
            sampling=GREEDY,
            seed=plan.settings.seed,
            thinking=False,
        )
        tokens = await plan.counting(plan.counter.count_messages, messages, thinking=False)
        outcome = Outcome(
            answer=None,
            detail=f"temperature 0, {placement}",
            predicted_calls=1,
            predicted_tokens=tokens + sample.generate,
        )
        try:
            completion = await self._model.complete(request)
        except LimitReached as limit:
            stopped = {"status": Status.STOPPED, "detail": str(limit)}
            return outcome.model_copy(update=stopped)
        try:
            end = {"answer": visible(completion)}
        except UnusableReply as error:
            end = {"status": Status.STOPPED, "detail": str(error)}
        return outcome.model_copy(update=end | {"usage": completion.usage})


async def _continues(model: ChatModel) -> bool:
    """Returns whether all servers behind a model continue an assistant's message.

    Raises:
        ModelError: a server cannot be reached.
    """
    servers = servers_of(model)
    return bool(servers) and all([(await server.dialect()).continues for server in servers])
