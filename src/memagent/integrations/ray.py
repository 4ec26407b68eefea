"""One question about many documents, on a cluster: a class for Ray Data (extra `ray`)."""

from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import Any

from memagent.errors import ConfigError, RunBusy
from memagent.memory.agent import MemoryAgent
from memagent.memory.corpus import Mapped
from memagent.models.base import ChatModel


class DocumentReader:
    """Asks a question about each document of a batch, in Ray Data's `map_batches`.

    Documents are in the column `path` (files that every node can open) or `text`. The columns `answer`, `detail` (why
    it is missing, as for a null, or incomplete), `calls` and `run_id` are added. If a worker fails, Ray repeats its
    batches in another one. On the same machine they are resumed; on another they are read again, since a run store
    can't be on a network disk.

    Args:
        model: a spec, such as `vllm:NAME`, or a model that can be pickled.
        question: the question.
        settings: settings of `MemoryAgent`.
    """

    def __init__(self, model: str | ChatModel, question: str, **settings: Any) -> None:
        self.agent, self.question = MemoryAgent(model, **settings), question

    def __call__(self, batch: dict[str, Sequence[str]]) -> dict[str, Sequence[Any]]:
        """Adds the answers to a batch, reading its documents concurrently; waits for one that another process reads.

        Raises:
            ConfigError: there is neither a column `path` nor `text`, or the model was not found.
        """
        column = next((name for name in ("path", "text") if name in batch), None)
        if column is None:
            raise ConfigError(f"the data has no column 'path' or 'text', only {sorted(batch)}")
        values, kind = list(batch[column]), Path if column == "path" else str
        places = [place for place, value in enumerate(values) if isinstance(value, (str, Path))]
        rows_by_place: dict[int, Mapped] = {}
        while places:
            documents = [kind(values[place]) for place in places]
            for row in self.agent.map(documents, self.question, concurrency=len(places)):
                rows_by_place[places[row.index]] = row
            places = [place for place in places if isinstance(rows_by_place[place].error, RunBusy)]
            sleep(1 if places else 0)
        rows = [rows_by_place.get(place) for place in range(len(values))]
        results = [row and row.result for row in rows]
        errors = [row.error if row else f"this row has no {column}" for row in rows]
        return {
            **batch,
            "answer": [result and result.answer for result in results],
            "detail": [r.detail if r else str(e) for r, e in zip(results, errors, strict=True)],
            "calls": [result.usage.calls if result else 0 for result in results],
            "run_id": [row and row.run_id for row in rows],
        }
