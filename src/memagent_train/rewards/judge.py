"""A model as the judge of answers."""

import asyncio

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, FinishReason, Message
from memagent.models.base import ChatModel
from memagent.models.spec import open_model
from memagent.prompts import Neutraliser, UnusableReply
from memagent.prompts.reply import visible
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent_train.rewards.judge_prompt import JudgePrompt
from memagent_train.rewards.settings import JudgeSettings
from memagent_train.rewards.verdict import Verdict

SHOWN = 200
"""Characters shown from the end of a reply without a verdict."""


class JudgeReward:
    """Asks a model whether an answer is right.

    The answer is in a field of the prompt that its content can't close. A reply that was cut off, or whose last line
    isn't a verdict, is retried once; after that the rollout stays unscored. A missing or
    overlong answer gets 0 without a call.

    Args:
        settings: the judge's settings.
        cap: maximum words of an answer; None for no cap.
        model: replaces the model in the settings; it isn't closed.

    Raises:
        ConfigError: no model is named, or the model or the prompt can't be loaded.
    """

    def __init__(
        self, settings: JudgeSettings, *, cap: int | None = None, model: ChatModel | None = None
    ) -> None:
        if model is None and not settings.model.strip():
            raise ConfigError(
                "the reward 'judge' needs a model: set model in the reward's judge section"
            )
        self._settings, self._cap, self._owned = settings, cap, model is None
        self._prompt = JudgePrompt.load(settings.prompt)
        self._model = model or open_model(settings.model, base_url=settings.base_url)
        self._neutraliser: Neutraliser | None = None

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """See `Reward`. Raises the model's errors."""
        if answer is None or not answer.strip():
            return Verdict(0.0)
        words = len(answer.split())
        scores = {"answer_words": float(words)}
        if self._cap is not None and words > self._cap:
            return Verdict(0.0, {**scores, "over_cap": 1.0})
        waiting = asyncio.timeout(self._settings.time_limit)
        try:
            async with waiting:
                messages = await self._messages(answer, sample)
                reward, reply = await self._ask(messages)
                if reward is None:
                    again = Message(role="user", content=self._prompt.again)
                    turn = Message(role="assistant", content=reply)
                    reward, reply = await self._ask((*messages, turn, again))
        except TimeoutError:
            if not waiting.expired():
                raise
            return Verdict(
                None, error=f"the judge took longer than {self._settings.time_limit:g} s"
            )
        if reward is None:
            return Verdict(
                None,
                scores,
                f"the judge gave no verdict on the second try either: {reply[-SHOWN:]!r}",
            )
        return Verdict(reward, scores)

    async def aclose(self) -> None:
        """Closes the model's connections, if it was opened here."""
        if self._owned:
            await self._model.aclose()

    async def _messages(self, answer: str, sample: Sample) -> tuple[Message, ...]:
        if self._neutraliser is None:
            counter = await self._model.counter()
            self._neutraliser = Neutraliser(
                dict(self._prompt.tags).values(), counter.control_tokens
            )
        safe = self._neutraliser.safe
        fields = {
            "question": safe(sample.question),
            "references": safe("\n".join(sample.outputs)),
            "answer": await in_thread(safe, answer.strip()),
        }
        return self._prompt.render(fields)

    async def _ask(self, messages: tuple[Message, ...]) -> tuple[float | None, str]:
        """Returns the reward (None if the reply has no verdict) and the reply."""
        completion = await self._model.complete(
            ChatRequest(
                messages=messages,
                max_tokens=self._settings.max_tokens,
                sampling=self._settings.sampling,
                thinking=self._settings.thinking,
            )
        )
        try:
            reply = visible(completion)
        except UnusableReply:
            return None, completion.text
        if completion.finish_reason is FinishReason.LENGTH:
            return None, reply
        return self._prompt.read(reply), reply
