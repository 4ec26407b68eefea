"""The section `[data]` of a training run: which samples there are, and in which shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from memagent.errors import ConfigError
from memagent.messages import Leaf
from memagent_bench.lengths import parse_length, parse_lengths


def _lengths(value: object) -> object:
    """`"8k,...,64k"`, a number, or a list of numbers and such texts."""
    try:
        if isinstance(value, str):
            return parse_lengths(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        if isinstance(value, (list, tuple)):
            parts: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
            return tuple(parse_length(part) if isinstance(part, str) else part for part in parts)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return value


Lengths = Annotated[tuple[Annotated[int, Field(gt=0)], ...], BeforeValidator(_lengths)]
"""Tokens of samples: `"8k,...,64k"`, `32768`, or `["8k", 32768]`."""
LENGTHS = (32 * 1024,)
"""The published training length."""


class SourceSettings(Leaf):
    """What all entries of `[[data.source]]` have."""

    name: str = ""
    """In logs and records; default: the kind."""
    weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Its share of the samples. Either all sources have one or none; without, each has as many as it holds."""


class GeneratedSettings(SourceSettings):
    """Tasks that make their samples: there are as many as one likes, and those of each epoch are new."""

    tasks: tuple[str, ...] = Field(default=("all",), min_length=1)
    """By name, as `memagent-bench` has them; `all`. They come by turns."""
    lengths: Lengths = Field(default=LENGTHS, min_length=1)
    """Of samples, reply included; each sample's is drawn."""
    count: int = Field(default=1000, gt=0)
    """Samples in an epoch."""
    essays: tuple[Path, ...] = ()
    """Texts of the haystack; empty for the shipped book."""


class RulerSettings(GeneratedSettings):
    """`kind = "ruler"`: RULER's retrieval, tracing and aggregation tasks. Its questions are `squad` and `hotpotqa`."""

    kind: Literal["ruler"]
    frames: Path | None = None
    """Wording of the tasks; None for ours."""


class TrackingSettings(GeneratedSettings):
    """`kind = "tracking"`: ledgers, counters, chains, tallies and facts that change from line to line."""

    kind: Literal["tracking"]


class FilteredSettings(SourceSettings):
    """Questions about the world, which a model may answer without reading."""

    no_context: Path | None = None
    """What `memagent_train.data.no_context` wrote: how often a model was right without the document."""
    known: float = Field(default=0.5, gt=0, le=1)
    """Questions that were answered right in at least this share of those tries are left out."""
    count: int | None = Field(default=None, gt=0)
    """Only the first so many, known ones among them; None for all."""


class QuestionSettings(FilteredSettings):
    """Questions whose paragraphs stand among others, at places that are fresh for every sample and epoch."""

    lengths: Lengths = Field(default=LENGTHS, min_length=1)
    """Of samples, reply included; each sample's is drawn."""
    paragraphs: tuple[Path, ...] = ()
    """Further paragraphs to hide the gold ones among; empty for what lies in the folder MEMAGENT_DATA."""
    allow_repeats: bool = False
    """Whether paragraphs may come twice where a length needs more than there are."""
    frames: Path | None = None
    """Wording; None for ours."""


class HotpotqaSettings(QuestionSettings):
    """`kind = "hotpotqa"`: files as HotpotQA publishes them, in the distractor setting."""

    kind: Literal["hotpotqa"]
    files: tuple[Path, ...] = ()
    """JSON, gzipped or not: those of the training set. Empty: what lies in the folder MEMAGENT_DATA, which is what the
    benchmarks measure on."""


class SquadSettings(QuestionSettings):
    """`kind = "squad"`: a file as SQuAD publishes it, without its unanswerable questions."""

    kind: Literal["squad"]
    file: Path | None = None
    """JSON, gzipped or not: that of the training set. None: what lies in the folder MEMAGENT_DATA, which is what the
    benchmarks measure on."""


class ColumnSettings(Leaf):
    """Which columns of a row are what. A dot goes into a column (`answers.text`), unless a column has that name."""

    document: str = Field(default="document", min_length=1)
    """A text, or a list of texts, which are put together with a blank line between."""
    question: str = Field(default="question", min_length=1)
    """A text."""
    answers: str = Field(default="answers", min_length=1)
    """A text or number, or a list of them. Forms of one answer or several wanted values: see the score."""


class RowSettings(FilteredSettings):
    """Rows of a table, each a document, a question and its answers."""

    columns: ColumnSettings = ColumnSettings()
    scorer: str = Field(default="equivalent", min_length=1)
    """How an answer is scored where the reward is `task`: a name in `memagent.tasks.SCORERS`, or `values`."""
    generate: int = Field(default=256, gt=0)
    """Tokens that a reply may take."""
    unusable: Literal["refuse", "drop"] = "refuse"
    """What becomes of rows that lack something: an error that names the first, or they are left out and counted."""


class JsonlSettings(RowSettings):
    """`kind = "jsonl"`: files with one JSON object a line, in UTF-8, gzipped or not."""

    kind: Literal["jsonl"]
    files: tuple[Path, ...] = Field(min_length=1)


class HubSettings(RowSettings):
    """`kind = "hub"`: what `datasets` loads."""

    kind: Literal["hub"]
    path: str = Field(min_length=1)
    """A name on the hub, a folder, or a parquet, JSON or CSV file."""
    subset: str | None = None
    """Name of the data set's configuration."""
    split: str = Field(default="train", min_length=1)
    """May be a part, such as `train[:2000]`."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""


class TaskSettings(SourceSettings):
    r"""`kind = "task"`: a task of one's own.

    A class or function that gives an object with `name`, `scorer`, `facts` and `sample(index)` (see
    `memagent.tasks.Task`). With this in `mytask.py` of the working folder, `use = "mytask:Sums"`:

    ```python
    from memagent.tasks import Sample


    class Sums:
        name, scorer, facts = "sums", "number_match", {}

        def sample(self, index):
            lines = [f"Box {n} holds {(index * n) % 97} nails." for n in range(1, 200)]
            context = "\n".join(lines)
            return Sample(
                task=self.name,
                index=index,
                length=4096,
                tokens=len(context) // 4,
                context=context,
                question="How many nails does box 150 hold?",
                outputs=(str(index * 150 % 97),),
                generate=16,
            )
    ```
    """

    kind: Literal["task"]
    use: str = Field(min_length=1)
    """`module:Class` or `module:function`."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """By name, for the class or function."""
    lengths: Lengths = ()
    """Where given, each is handed over as `length=`, and each sample's is drawn."""
    count: int = Field(default=1000, gt=0)
    """Samples in an epoch. Those of each epoch have new indexes."""


AnySource = Annotated[
    RulerSettings
    | TrackingSettings
    | HotpotqaSettings
    | SquadSettings
    | JsonlSettings
    | HubSettings
    | TaskSettings,
    Field(discriminator="kind"),
]


class DataSettings(Leaf):
    """Sources and how they are mixed.

    ```toml
    [data]
    seed = 1

    [[data.source]]
    kind = "hotpotqa"
    lengths = ["8k", "32k"]
    weight = 3

    [[data.source]]
    kind = "jsonl"
    files = ["contracts.jsonl"]
    columns = { document = "text", answers = "answer" }
    weight = 1
    ```
    """

    source: tuple[AnySource, ...] = Field(min_length=1)
    seed: int = 0
    """Of generated samples, places, order and the split: the same seed gives the same data."""
    size: int | None = Field(default=None, gt=0)
    """Samples in an epoch. None: as many as there are without taking one twice."""
    length_tokenizer: str | None = None
    """Names lengths: `gpt2`, or what `memagent.tokens.load_counter` takes. None for the policy's own."""
