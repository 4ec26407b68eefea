"""The section `[reward]` of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from memagent.messages import Leaf, Sampling

AnswerForm = Literal["given", "boxed", "sentence"]


class JudgeSettings(Leaf):
    """The model that judges answers, for `use = "judge"`."""

    model: str = ""
    """What `memagent.models.open_model` takes, such as `vllm:Qwen/Qwen3-32B`; its key comes from the environment."""
    base_url: str | None = None
    """The judge's server, where it is not at the place that is usual for its kind."""
    prompt: Path | None = None
    """A TOML file like the shipped `judge.toml`; None for that one."""
    max_tokens: int = Field(default=512, gt=0)
    """Of one verdict, reasoning included."""
    sampling: Sampling = Sampling(temperature=0.0, top_p=1.0)
    thinking: bool | None = None
    """False asks a reasoning model to judge without reasoning."""
    time_limit: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Seconds for one verdict, both attempts and all retries included."""


class RewardSettings(Leaf):
    """How answers are rewarded.

    A function of one's own is named as `module:function`. With this in `myrewards.py` of the working folder, the
    setting is `use = "myrewards:reward"`:

    ```python
    def reward(answer, sample):
        if answer is None:
            return 0.0
        right = answer.strip() == sample.outputs[0]
        return {"reward": float(right), "characters": len(answer)}
    ```

    `answer` is a text or None, `sample` a `memagent.tasks.Sample` (from files with the user's other columns in
    `sample.columns`). The function gives a finite number, None for no reward, or a mapping with `reward` and
    further numbers to log. A plain function runs in processes of its own, with a time limit; an `async def` runs on
    the event loop of the rollouts and must not block it.
    """

    use: str = Field(default="task", min_length=1)
    """`task` (the score by which each sample's task is measured), a score by name (`equivalent` is Eq. 6 of MemAgent,
    arXiv 2507.02259), `values` (its Eq. 7, with a cap on words), `judge`, or `module:function`."""
    answer_form: AnswerForm = "given"
    """`given` takes the answer as the agent gives it: a memory agent has taken it out of its form already. `boxed` and
    `sentence` take it out of the reply that an agent of one's own gives; a reply without that form is no answer."""
    max_answer_words: int | None = Field(default=None, gt=0)
    """A longer answer gets 0 by every reward but a function of one's own. None: 64 for `values`, no cap for others."""
    beside: tuple[str, ...] = ()
    """Scores by name that are logged beside the reward, such as `exact_match` beside `sub_exact_match`."""
    time_limit: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds for one call of a function of one's own. What takes longer is killed and leaves its rollout unscored."""
    workers: int = Field(default=2, gt=0)
    """Processes for a function of one's own that is not async; each process of the training has so many."""
    judge: JudgeSettings = JudgeSettings()
    gate_reward: bool = False
    """Whether update calls of a gated memory agent get step rewards: see `memagent_train.rewards.gates`."""
