"""The tool agent as what is trained: whole sessions on a policy, and what is left of them for training."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.models.transformers.policies import tokenizer
from tests.train.rollout.policies import sample as document

from memagent import RunStore, ScriptedModel
from memagent.errors import ConfigError
from memagent.messages import FinishReason, Sampling
from memagent_bench.games import make
from memagent_bench.games.base import Deal, Game, act
from memagent_engines.transformers.sampler import Sampled
from memagent_train.agents import AgentSettings, load_agent
from memagent_train.data.games import GameTask
from memagent_train.rewards.open import open_rewards
from memagent_train.rewards.settings import RewardSettings
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollouts import Outcome, Rollout, Status
from memagent_viewer.view import View

NAMES = tokenizer()
W = 640
SMALL = {"working_context": W, "summary_tokens": 32, "reply_tokens": 24, "protocol": "compact"}
DECK = GameTask("deck", 30, seed=1).sample(0)


class Player:
    """An engine that draws until the deck is empty, sums up when asked, and then answers.

    Args:
        answer: what it answers.
        wrong: share of the summaries that are calls instead; each is asked for again.
        never: whether it never answers.
        rambles: whether its first reply to a prompt of over 400 tokens, if it isn't a summary, has no end.
        endless: the kind of call, act or summary, whose replies to such prompts don't end their reasoning.
    """

    window = 1024

    def __init__(
        self,
        answer: str = "1, 2",
        *,
        wrong: float = 0.0,
        never: bool = False,
        rambles: bool = False,
        endless: str = "",
    ) -> None:
        self.answer, self.wrong, self.never, self.rambles = answer, wrong, never, rambles
        self.endless = endless
        self.drawn = 0
        self._chance = random.Random(5)

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        last = NAMES.decode(list(prompt_ids)).rpartition("user\n")[2]
        kind = "summary" if "Sum up what" in last else "act"
        if kind == self.endless and len(prompt_ids) > 400:
            text = "<think>" + "draw " * max_tokens
        elif kind == "summary":
            bad = self._chance.random() < self.wrong
            text = "draw()" if bad else f"sum {self._chance.randrange(100)}"
        elif self.rambles and len(prompt_ids) > 400:
            self.rambles, text = False, "draw " * max_tokens
        else:
            text = self.answer if "the deck is empty" in last and not self.never else "draw()"
        ids = tuple([*NAMES(text, add_special_tokens=False)["input_ids"], 2][:max_tokens])
        self.drawn += len(ids)
        ended = FinishReason.STOP if ids[-1] == 2 else FinishReason.LENGTH
        return Sampled(ids, (-1.0,) * len(ids), ended)

    def generating(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


class Broken(Game):
    """Its only tool has a bug, which it shows at odd calls, or says nothing at all."""

    name = "broken"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        return Deal("Draw.", "1")

    @act
    def draw(self) -> str:
        """Draw a card."""
        return str(1 // (self.steps % 2 - 1)) if self.steps < 3 else cast("str", None)


def play(engine: Player, count: int = 1, task: Any = DECK, **tools: Any) -> list[Rollout]:
    settings = AgentSettings.model_validate({"use": "tools", "tools": {**SMALL, **tools}})
    agent = load_agent(settings, store=None)
    asked = [RolloutRequest(task, "g", f"r{n}", n) for n in range(count)]

    async def rolled() -> list[Rollout]:
        rewards = open_rewards(RewardSettings())
        return await roll(asked, model=RolloutModel(engine, NAMES), agent=agent, verifier=rewards)

    return asyncio.run(rolled())


def answer_of(task: GameTask) -> str:
    game: Any = make("deck", seed=task.sample(0).seed, difficulty=30)
    return game._answer


def test_a_session_is_rows_in_which_each_sampled_token_is_trained_once() -> None:
    engine = Player()
    (one,) = play(engine)
    assert (one.status, one.reward, one.overlong, one.error) == (Status.SCORED, 0.0, False, "")
    assert one.scores["steps"] == 31
    assert one.scores["summaries"] >= 2
    assert sum(row.sampled for row in one.rows) == engine.drawn
    kinds = [span.kind for row in one.rows for span in row.spans]
    assert kinds.count("summary") == one.scores["summaries"]
    assert kinds.count("act") == 32
    assert all(len(row.prompt_ids) + len(row.response_ids) <= W for row in one.rows)


def test_the_verdict_is_the_reward() -> None:
    (one,) = play(Player(answer_of(GameTask("deck", 30, seed=1))))
    assert (one.reward, one.overlong) == (1.0, False)


@pytest.mark.parametrize("verdict", [None, "right"])
def test_a_verdict_that_is_not_a_number_is_the_games_fault(
    verdict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_bench.games.base.Game.verdict", lambda _: verdict)
    (one,) = play(Player())
    assert one.status is Status.FAILED
    assert f"verdict() of the game 'Deck' returned {verdict!r}: return a number" in one.error


@pytest.mark.parametrize("limit", [{"max_steps": 9}, {"max_summaries": 1}])
def test_a_session_that_a_limit_ends_is_overlong(limit: dict[str, int]) -> None:
    engine = Player()
    (one,) = play(engine, **limit)
    assert (one.status, one.answer, one.reward, one.overlong) == (Status.SCORED, None, 0.0, True)
    assert sum(row.sampled for row in one.rows) == engine.drawn


def test_a_bug_in_a_tool_is_counted_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    task = GameTask(f"{__name__}:Broken", 30, seed=1).sample(0)
    played = play(Player(), count=2, task=task, max_steps=4)
    assert [one.scores["tools/failed"] for one in played] == [0.75, 0.75]
    (said,) = (one.getMessage() for one in caplog.records if one.name == "memagent.train")
    assert "tool 'draw' of Broken failed: ZeroDivisionError: " in said
    assert play(Player())[0].scores["tools/failed"] == 0.0


def test_summaries_that_were_asked_for_again_are_rejected() -> None:
    engine = Player(wrong=0.5)
    (one,) = play(engine)
    spans = [span for row in one.rows for span in row.spans if span.kind == "summary"]
    rejected = [span for span in spans if span.rejected]
    assert rejected
    assert len(spans) - len(rejected) == one.scores["summaries"]
    assert sum(row.sampled for row in one.rows) == engine.drawn


@pytest.mark.parametrize("reply_tokens", [24, None])
def test_a_reply_that_was_cut_off_and_asked_for_again_is_rejected(reply_tokens: int | None) -> None:
    engine = Player(rambles=True)
    (one,) = play(engine, reply_tokens=reply_tokens)
    rejected = [span for row in one.rows for span in row.spans if span.rejected]
    assert [span.kind for span in rejected] == ["act"]
    assert rejected[0].end - rejected[0].start >= 24
    assert sum(row.sampled for row in one.rows) == engine.drawn


@pytest.mark.parametrize("kind", ["act", "summary"])
def test_a_session_whose_reasoning_has_no_end_is_overlong(kind: str) -> None:
    (one,) = play(Player(endless=kind))
    assert (one.status, one.answer, one.reward, one.overlong) == (Status.SCORED, None, 0.0, True)
    assert one.rows[-1].spans[-1].kind == kind


def test_a_summary_that_stays_unusable_is_scored() -> None:
    (one,) = play(Player(wrong=1.0))
    assert (one.status, one.answer, one.reward, one.overlong) == (Status.SCORED, None, 0.0, False)


def test_a_session_in_circles_is_scored() -> None:
    (one,) = play(Player(never=True), max_steps=1000, max_summaries=1000)
    assert (one.status, one.reward, one.overlong) == (Status.SCORED, 0.0, False)


def test_runs_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    async def kept() -> None:
        store = await asyncio.to_thread(RunStore, tmp_path / "runs.sqlite")
        settings = AgentSettings.model_validate({"use": "tools", "tools": SMALL})
        agent = await asyncio.to_thread(lambda: load_agent(settings, store=store))
        request = RolloutRequest(DECK, "g", "kept", 0)
        for _ in range(2):  # the second finds the run of a killed process
            await roll(
                [request],
                model=RolloutModel(Player(), NAMES),
                agent=agent,
                verifier=open_rewards(RewardSettings()),
            )
        assert [run.id for run in await asyncio.to_thread(store.runs)] == ["kept"]
        view = await asyncio.to_thread(View, store, "kept")
        assert await asyncio.to_thread(view.update)
        page = await asyncio.to_thread(view.data)
        assert (page["kind"], page["items"][-1]["type"]) == ("session", "answer")

    asyncio.run(kept())


async def test_only_games_can_be_played() -> None:
    settings = AgentSettings.model_validate({"use": "tools"})
    agent = await asyncio.to_thread(lambda: load_agent(settings, store=None))
    with pytest.raises(ConfigError, match=r"is not a game: .* needs data of kind 'game'"):
        await agent(ScriptedModel([]), document())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use": "tools", "window": 512}, "window: these are settings of the memory agent"),
        ({"tools": {}}, "tools: these are settings of the tool agent"),
        ({"use": "m:f", "tools": {}}, "tools: these are settings of the tool agent"),
        (
            {"use": "m:f", "gate": "both", "window": 9},
            "gate, window: these are settings of the memory agent",
        ),
    ],
)
def test_settings_of_another_agent_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_agent(AgentSettings.model_validate(settings), store=None)


async def test_a_limit_of_calls_is_overlong() -> None:
    settings = AgentSettings.model_validate({"use": "tools", "tools": SMALL, "max_calls": 3})
    agent = await asyncio.to_thread(lambda: load_agent(settings, store=None))
    outcome = await agent(RolloutModel(Player(), NAMES), DECK)
    assert isinstance(outcome, Outcome)
    assert (outcome.answer, outcome.overlong) == (None, True)
