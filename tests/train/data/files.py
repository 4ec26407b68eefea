"""Data files and sources for tests."""

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from memagent.tasks import Sample
from memagent.tokens import TokenCounter
from memagent_bench.length_tokens import length_counter
from memagent_train.data.open import Data, open_data
from memagent_train.data.settings import DataSettings

COUNTER: TokenCounter = length_counter(None)


def data(*source: Mapping[str, Any], **more: Any) -> Data:
    """Opens sources that are written as in a settings file."""
    return open_data(settings(*source, **more), counter=COUNTER)


def settings(*source: Mapping[str, Any], **more: Any) -> DataSettings:
    return DataSettings.model_validate_json(
        json.dumps({"source": source, **more}, default=str), strict=True
    )


def rows(n: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "document": f"House {i} has {3 * i} windows.",
            "question": f"How many windows has house {i}?",
            "answers": [str(3 * i)],
            "level": i % 3,
        }
        for i in range(start, start + n)
    ]


def jsonl(path: Path, lines: Iterable[object]) -> Path:
    """One line each: a text as it is, anything else as JSON."""
    texts = [
        line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines
    ]
    raw = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


class Sums:
    """A task as a user writes one."""

    name, scorer = "sums", "number_match"

    def __init__(self, length: int = 500, start: int = 0) -> None:
        self.length, self.start = length, start

    @property
    def facts(self) -> dict[str, str | int | bool]:
        return {"start": self.start}

    def sample(self, index: int) -> Sample:
        return Sample(
            task=self.name,
            index=index,
            length=self.length,
            tokens=self.length,
            context=f"Box {index} holds {self.start + 7 * index} nails.",
            question="How many nails?",
            outputs=(str(self.start + 7 * index),),
            generate=16,
        )


class Ending(Sums):
    """One that has an end."""

    def __len__(self) -> int:
        return 5


class Picky(Sums):
    """One whose length is too short for every third sample."""

    def sample(self, index: int) -> Sample:
        from memagent.errors import ConfigError

        if index % 3 == 2:
            raise ConfigError(f"{self.length} tokens are too few for sample {index}")
        return super().sample(index)


class Broken(Sums):
    def sample(self, index: int) -> Sample:
        raise ZeroDivisionError("of the user's")


class Odd(Sums):
    def sample(self, index: int) -> Sample:
        return "a text"  # type: ignore[return-value]


class NoTask:
    name = "none"
