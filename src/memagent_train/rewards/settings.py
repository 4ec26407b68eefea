"""The section `[reward]` of a training run."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from memagent.messages import Leaf, Sampling

AnswerForm = Literal["given", "boxed", "sentence"]


class JudgeSettings(Leaf):
    """The model that judges answers, for `use = "judge"`."""

    model: str = ""
    """What `memagent.models.open_model` accepts, such as `vllm:Qwen/Qwen3-32B`; its key comes from the environment."""
    base_url: str | None = None
    """URL of the judge's server, if it isn't the default for its kind."""
    prompt: Path | None = None
    """A TOML file like the shipped `judge.toml`, which is the default."""
    max_tokens: int = Field(default=512, gt=0)
    """Maximum tokens of one verdict, including reasoning."""
    sampling: Sampling = Sampling(temperature=0.0, top_p=1.0)
    thinking: bool | None = None
    """False asks a reasoning model to judge without reasoning."""
    time_limit: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Seconds for one verdict, including both attempts and all retries."""


class RewardSettings(Leaf):
    """How answers are rewarded.

    Name your own function as `module:function`. With this in `myrewards.py` in the working directory, the
    setting is `use = "myrewards:reward"`:

    ```python
    def reward(answer, sample):
        if answer is None:
            return 0.0
        right = answer.strip() == sample.outputs[0]
        return {"reward": float(right), "characters": len(answer)}
    ```

    `answer` is a text or None, `sample` a `memagent.tasks.Sample` (from files, with the user's other columns in
    `sample.columns`). The function returns a finite number, None for no reward, or a mapping with `reward` and
    other numbers to log. A sync function runs in separate processes, with a time limit; an `async def` runs on
    the event loop of the rollouts and must not block it.
    """

    use: str = Field(default="task", min_length=1)
    """`task` (each sample's task score, or the reward in the agent's `Outcome`), a score by name (`equivalent` is
    Eq. 6 of MemAgent, arXiv 2507.02259), `values` (its Eq. 7, with a cap on words), `judge`, or `module:function`."""
    answer_form: AnswerForm = "given"
    """`given` uses the agent's answer verbatim: a memory agent has already extracted it. `boxed` and
    `sentence` extract it from the reply of your own agent; a reply without that form counts as no answer."""
    max_answer_words: int | None = Field(default=None, gt=0)
    """A longer answer gets 0 from every reward except your own function. None: 64 for `values`, no cap for others."""
    beside: tuple[str, ...] = ()
    """Other scores to log, such as `exact_match` next to the reward `sub_exact_match`."""
    time_limit: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Seconds for one call of your own function. A slower call is killed and leaves its rollout unscored."""
    workers: int = Field(default=2, gt=0)
    """Processes for your own sync function, per training process."""
    judge: JudgeSettings = JudgeSettings()
    gate_reward: bool = False
    """Whether update calls of a gated memory agent get step rewards: see `memagent_train.rewards.gates`."""
