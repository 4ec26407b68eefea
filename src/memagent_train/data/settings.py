"""The section `[data]` of a training run: samples and the sources' shares."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from memagent.errors import ConfigError
from memagent.messages import Leaf
from memagent_bench.lengths import parse_length, parse_lengths


def _lengths(value: object) -> object:
    """Parses lengths: `"8k,...,64k"`, a number, or a list of numbers and such texts."""
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
"""Lengths of samples in tokens: `"8k,...,64k"`, `32768`, or `["8k", 32768]`."""
LENGTHS = (32 * 1024,)
"""The published training length."""


class SourceSettings(Leaf):
    """What all entries of `[[data.source]]` have."""

    name: str = ""
    """Name in logs and records; default: the kind."""
    weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Share of the samples. Give all sources a weight or none; by default, shares are proportional to sizes."""


class GeneratedSettings(SourceSettings):
    """Tasks that generate their samples: there is no limit, and each epoch has new ones."""

    tasks: tuple[str, ...] = Field(default=("all",), min_length=1)
    """Task names as in `memagent-bench`, or `all`. Samples alternate between them."""
    lengths: Lengths = Field(default=LENGTHS, min_length=1)
    """Lengths of samples, including the reply; each sample draws one at random."""
    count: int = Field(default=1000, gt=0)
    """Samples per epoch."""
    essays: tuple[Path, ...] = ()
    """Text files for the haystack; empty for the shipped book."""


class RulerSettings(GeneratedSettings):
    """`kind = "ruler"`: RULER's retrieval, tracing and aggregation tasks. Its questions are `squad` and `hotpotqa`."""

    kind: Literal["ruler"]
    frames: Path | None = None
    """Wording of the tasks; None: memagent's."""


class TrackingSettings(GeneratedSettings):
    """`kind = "tracking"`: ledgers, counters, chains, tallies and facts that change from line to line."""

    kind: Literal["tracking"]


class FilteredSettings(SourceSettings):
    """Questions about the world, which a model may answer without reading."""

    no_context: Path | None = None
    """File written by `memagent_train.data.no_context`: how often a model was right without the document."""
    known: float = Field(default=0.5, gt=0, le=1)
    """Questions answered right in at least this share of those tries are left out."""
    count: int | None = Field(default=None, gt=0)
    """Maximum number of items, including known ones; None: all."""


class QuestionSettings(FilteredSettings):
    """Questions whose paragraphs are hidden among others, at new places for every sample and epoch."""

    lengths: Lengths = Field(default=LENGTHS, min_length=1)
    """Lengths of samples, including the reply; each sample draws one at random."""
    paragraphs: tuple[Path, ...] = ()
    """Additional paragraphs to hide the gold ones among; empty: those in the folder MEMAGENT_DATA."""
    allow_repeats: bool = False
    """Whether paragraphs may be repeated if a length needs more than there are."""
    frames: Path | None = None
    """Wording of the task; None: memagent's."""


class HotpotqaSettings(QuestionSettings):
    """`kind = "hotpotqa"`: files in HotpotQA's published format, distractor setting."""

    kind: Literal["hotpotqa"]
    files: tuple[Path, ...] = ()
    """JSON files of the training set, may be gzipped. Empty: those in the folder MEMAGENT_DATA, which the benchmarks
    measure on."""


class SquadSettings(QuestionSettings):
    """`kind = "squad"`: a file in SQuAD's published format; unanswerable questions are left out."""

    kind: Literal["squad"]
    file: Path | None = None
    """JSON file of the training set, may be gzipped. None: the one in the folder MEMAGENT_DATA, which the benchmarks
    measure on."""


class ColumnSettings(Leaf):
    """The meaning of a row's columns. A dot accesses a nested field (`answers.text`), unless a column has that name."""

    document: str = Field(default="document", min_length=1)
    """Column with the document: a text, or a list of texts, which are joined by blank lines."""
    question: str = Field(default="question", min_length=1)
    """Column with the question, a text."""
    answers: str = Field(default="answers", min_length=1)
    """Column with a text or number, or a list of them: forms of one answer, or required values (see the score)."""


class RowSettings(FilteredSettings):
    """Rows of a table, each with a document, a question and its answers."""

    columns: ColumnSettings = ColumnSettings()
    scorer: str = Field(default="equivalent", min_length=1)
    """How an answer is scored if the reward is `task`: a name in `memagent.tasks.SCORERS`, or `values`."""
    generate: int = Field(default=256, gt=0)
    """Maximum tokens of a reply."""
    unusable: Literal["refuse", "drop"] = "refuse"
    """What happens to rows that lack something or have answers that the score can't use: `refuse` is an error for the
    first, `drop` drops and counts them."""


class JsonlSettings(RowSettings):
    """`kind = "jsonl"`: UTF-8 files with one JSON object per line, may be gzipped."""

    kind: Literal["jsonl"]
    files: tuple[Path, ...] = Field(min_length=1)


class HubSettings(RowSettings):
    """`kind = "hub"`: anything that `datasets` loads."""

    kind: Literal["hub"]
    path: str = Field(min_length=1)
    """A name on the hub, a folder, or a parquet, JSON or CSV file."""
    subset: str | None = None
    """Name of the data set's configuration."""
    split: str = Field(default="train", min_length=1)
    """Name of the split; may select a part, such as `train[:2000]`."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""


class TaskSettings(SourceSettings):
    r"""`kind = "task"`: a user-defined task.

    A class or function that returns an object with `name`, `scorer`, `facts` and `sample(index)` (see
    `memagent.tasks.Task`). With this in `mytask.py` in the working directory, `use = "mytask:Sums"`:

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
    """Keyword arguments for the class or function."""
    lengths: Lengths = ()
    """If given, each sample draws one at random, and it is passed as `length=`."""
    count: int = Field(default=1000, gt=0)
    """Samples per epoch. Each epoch has new indexes."""


class GameSettings(SourceSettings):
    """`kind = "game"`: tool games, dealt anew for every sample, for `agent.use = "tools"` or your own agent.

    The game's verdict is the reward. A sample's length is the difficulty of its game, so `evaluation.lengths` are
    difficulties too.
    """

    kind: Literal["game"]
    games: tuple[str, ...] = Field(default=("all",), min_length=1)
    """Names of `memagent_bench.games`, `all`, or `module:Class` for your own: called with `seed=` and `difficulty=`,
    it returns a `memagent.tools.Environment`. Samples alternate between them."""
    difficulties: Lengths = Field(default=(20,), min_length=1)
    """Approximate number of tool calls that a perfect player needs; each sample draws one at random."""
    count: int = Field(default=1000, gt=0)
    """Samples per epoch. Each epoch has new samples."""


AnySource = Annotated[
    GameSettings
    | RulerSettings
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
    """Seed of generated samples, places, order and split: the same seed gives the same data."""
    size: int | None = Field(default=None, gt=0)
    """Samples per epoch. None: as many as there are without repetition."""
    length_tokenizer: str | None = None
    """Tokenizer that measures lengths: `gpt2`, or what `memagent.tokens.load_counter` accepts; None: the policy's."""
