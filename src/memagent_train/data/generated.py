"""Tasks that generate their samples: RULER's, the tracking tasks, and user-defined ones."""

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

from memagent.errors import ConfigError, MemagentError
from memagent.named import load_function
from memagent.tasks import Sample, Task
from memagent.tokens import TokenCounter
from memagent_bench.options import DataOptions
from memagent_bench.suites import choose_tasks
from memagent_train.data.samples import TrainingSample
from memagent_train.data.settings import RulerSettings, TaskSettings, TrackingSettings
from memagent_train.data.sources import as_training, digest_of, draw_length
from memagent_train.errors import DataError

ABOUT_THE_WORLD = ("qa_1", "qa_2")
"""RULER's question tasks, which are finite data sets."""
TRIED = 3
"""Samples generated when a source is opened, so that a length that is too short is reported immediately."""
OTHERS, FAR = 8, 1 << 40
"""Maximum replacements for a sample that doesn't fit its length, and the distance of their indexes: no training
gets that far."""
SHORT = 4096
"""Length in tokens from which one sample is enough: differences between samples are then relatively small."""

MakeTask = Callable[[str, int | None], Task]
"""Maps a name and a length to a task; the length is None if the source has none."""


class TaskSource:
    """Alternates between tasks, at random lengths. Later rounds use later indexes.

    Args:
        name: the source's name.
        make: makes a task from name and length.
        tasks: names of the tasks.
        lengths: lengths of samples; empty for tasks without lengths.
        count: samples per round.
        seed: seed of the lengths.

    Raises:
        ConfigError: a task can't generate samples of a length.
        DocumentError: a file that a task needs is unusable.
    """

    def __init__(
        self,
        name: str,
        make: MakeTask,
        tasks: Sequence[str],
        *,
        lengths: tuple[int, ...],
        count: int,
        seed: int,
    ) -> None:
        self.name, self.lengths = name, lengths
        self._make, self._names, self._count, self._seed = make, tuple(tasks), count, seed
        self._tasks: dict[tuple[str, int | None], Task] = {}
        self._facts: dict[str, Any] = {}
        for task in self._names:
            for length in lengths or (None,):
                self._facts[f"{task}:{length}"] = self._probe(task, length)

    @property
    def facts(self) -> Mapping[str, Any]:
        """See `Source`."""
        return {"count": len(self), "lengths": self.lengths, "tasks": self._facts}

    def __len__(self) -> int:
        """Returns the number of items: fewer than requested if a task is finite."""
        ends = [len(task) for task in self._tasks.values() if isinstance(task, Sized)]
        return min([self._count, *(end * len(self._names) for end in ends)])

    def sample(self, item: int, round_: int, length: int | None = None) -> TrainingSample:
        """See `Source`. A sample that doesn't fit its length is replaced by another."""
        name = self._names[item % len(self._names)]
        wanted = length or (
            draw_length(self.lengths, self._seed, self.name, item, round_) if self.lengths else None
        )
        task = self._task(name, wanted)
        place = item // len(self._names)
        if isinstance(task, Sized):
            return as_training(_sample_of(task, place), task.scorer)
        place += round_ * -(-self._count // len(self._names))
        while True:
            try:
                return as_training(_sample_of(task, place), task.scorer)
            except ConfigError as error:  # what this sample draws doesn't fit the length
                place += FAR
                if isinstance(error, DataError) or place > OTHERS * FAR:
                    raise

    def _probe(self, name: str, length: int | None) -> dict[str, Any]:
        """Generates the first samples and returns facts about the task."""
        task = self._task(name, length)
        tried = TRIED if length is not None and length < SHORT else 1
        samples = [_sample_of(task, index) for index in range(tried)]
        return {**dict(task.facts), "scorer": task.scorer, "first": digest_of(samples[0])}

    def _task(self, name: str, length: int | None) -> Task:
        if (name, length) not in self._tasks:
            self._tasks[name, length] = self._make(name, length)
        return self._tasks[name, length]


def open_ruler(settings: RulerSettings, counter: TokenCounter, seed: int) -> TaskSource:
    """Opens RULER's tasks without its questions. Raises the errors of `TaskSource`; `ConfigError` for unknown tasks."""
    tasks = choose_tasks("ruler", ",".join(settings.tasks))
    names = [name for name in ABOUT_THE_WORLD if name in settings.tasks]
    if names:
        raise ConfigError(
            f"the tasks {names} use questions from a data set: give a source of kind 'squad' or 'hotpotqa' instead"
        )
    options = DataOptions(
        counter=counter,
        seed=seed,
        positions="shuffled",
        essays=settings.essays,
        frames=settings.frames,
    )
    return _suite(settings, tasks, options)


def open_tracking(settings: TrackingSettings, counter: TokenCounter, seed: int) -> TaskSource:
    """Opens the tracking tasks. Raises the errors of `TaskSource`, and `ConfigError` for an unknown task."""
    tasks = choose_tasks("tracking", ",".join(settings.tasks))
    options = DataOptions(counter=counter, seed=seed, positions="shuffled", essays=settings.essays)
    return _suite(settings, tasks, options)


def _suite(
    settings: RulerSettings | TrackingSettings,
    tasks: Mapping[str, Callable[[int, DataOptions], Task]],
    options: DataOptions,
) -> TaskSource:
    def make(name: str, length: int | None) -> Task:
        assert length is not None
        return tasks[name](length, options)

    return TaskSource(
        settings.name or settings.kind,
        make,
        [name for name in tasks if name not in ABOUT_THE_WORLD],
        lengths=settings.lengths,
        count=settings.count,
        seed=options.seed,
    )


def open_own(settings: TaskSettings, seed: int) -> TaskSource:
    """Opens a user-defined task.

    Raises:
        ConfigError: it can't be imported or created, or fails to make a sample.
    """
    factory = load_function(settings.use, "task")

    def make(name: str, length: int | None) -> Task:
        arguments = dict(settings.arguments) | ({} if length is None else {"length": length})
        try:
            task = factory(**arguments)
        except MemagentError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise ConfigError(
                f"the task {settings.use!r} cannot be created with {arguments!r}: {type(error).__name__}: {error}"
            ) from error
        missing = [
            what for what in ("name", "scorer", "facts", "sample") if not hasattr(task, what)
        ]
        if missing:
            raise ConfigError(
                f"the task {settings.use!r} lacks {', '.join(missing)}: see memagent.tasks.Task"
            )
        return task

    name = settings.name or settings.use.partition(":")[2]
    return TaskSource(
        name, make, [settings.use], lengths=settings.lengths, count=settings.count, seed=seed
    )


def _sample_of(task: Task, index: int) -> Sample:
    try:
        sample = task.sample(index)
    except MemagentError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise DataError(
            f"the task {task.name!r} failed to make sample {index}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(sample, Sample):
        raise DataError(
            f"the task {task.name!r} returned {sample!r:.80} as sample {index}: return a memagent.tasks.Sample"
        )
    return sample
