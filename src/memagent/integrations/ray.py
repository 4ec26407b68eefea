"""One question about many documents, on a cluster: a class for Ray Data (extra `ray`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError, RunBusy
from memagent.memory.agent import MemoryAgent
from memagent.models.base import ChatModel


class DocumentReader:
    """Asks a question about each document of a batch, in Ray Data's `map_batches`.

        ray.data.from_items([{"path": "a.txt"}, {"path": "b.txt"}]).map_batches(
            DocumentReader, fn_constructor_args=("vllm:Qwen/Qwen3-4B", "Who reset the boiler?"),
            batch_size=8, concurrency=4,
        )

    Documents are in the column `path` (files that every node can open) or `text`. The columns `answer`, `detail` (why
    there is none), `calls` and `run_id` are added. If a worker fails, Ray repeats its batches in another one, which
    resumes them on the same machine, and reads them again on another: a run store can't be on a network disk.

    Args:
        model: a spec, such as `vllm:NAME`, or a model that can be pickled.
        question: the question.
        settings: of `MemoryAgent`.
    """

    def __init__(self, model: str | ChatModel, question: str, **settings: Any) -> None:
        self.agent, self.question = MemoryAgent(model, **settings), question

    def __call__(self, batch: dict[str, Sequence[str]]) -> dict[str, Sequence[Any]]:
        """Adds the answers to a batch, whose documents are read at once.

        Raises:
            ConfigError: there is neither a column `path` nor `text`, or the model was not found.
            RunBusy: a worker that Ray has given up still reads one of them; Ray tries again.
        """
        if "path" in batch:
            documents = [Path(path) for path in batch["path"]]
        elif "text" in batch:
            documents = [str(text) for text in batch["text"]]
        else:
            raise ConfigError(f"the data has no column 'path' or 'text', only {sorted(batch)}")
        found = self.agent.map(documents, self.question, concurrency=len(documents))
        rows = sorted(found, key=lambda row: row.index)
        for row in rows:
            if isinstance(row.error, RunBusy):
                raise row.error
        return {
            **batch,
            "answer": [row.result and row.result.answer for row in rows],
            "detail": [row.result.detail if row.result else str(row.error) for row in rows],
            "calls": [row.result.usage.calls if row.result else 0 for row in rows],
            "run_id": [row.run_id for row in rows],
        }
