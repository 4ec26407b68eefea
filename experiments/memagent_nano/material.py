"""Training data for imitation: files of lessons, made once for all seeds and arms."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from memagent.errors import ConfigError
from memagent.replacing import replacing
from memagent.runstore import hold_folder
from memagent.terminal import duration
from memagent_nano import direct, lessons
from memagent_nano.lessons import Lesson
from memagent_nano.stages import GATED, ROLLOUTS, SETTLING, Place

DOCUMENTS = 6000
"""Documents that an expert reads: 16,000 conversations of `pico`, 19,000 of `nano`."""
MORE = 24_000
"""Documents that it reads for the arm that imitates more of the same."""
LONG = 8000
"""Longer documents, for `shown-long`."""
DENSE = 3000
"""Documents for `shown-dense`."""
DIRECT = 20_000
"""Documents that are answered at once."""
ECHOES, COPIES = 40_000, 100_000
"""Number of texts, and of conversations."""


def make(
    place: Place, names: Collection[str], *, say: Callable[[str], object] = lambda _: None
) -> None:
    """Writes the files that are not there yet. Blocks for minutes.

    Args:
        place: place of a course of any seed.
        names: names of lessons; those without a file are ignored.
        say: prints progress, a line at a time.

    Raises:
        ConfigError: the folder cannot be made.
        RunBusy: another process is writing them.
        StoreReadOnly: the folder cannot be written.
    """
    files = {
        name: place.lessons / f"{name}.jsonl" for name in sorted({*names} - {"", ROLLOUTS, GATED})
    }
    if all(file.is_file() for file in files.values()):
        return
    try:
        place.lessons.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {str(place.lessons)!r} ({error.strerror}): give another --out"
        ) from error
    with hold_folder(place.lessons):
        makers = _makers(place, _tokenizer(place))
        for name, file in files.items():
            if not file.is_file():
                say(f"lessons {name}: begun")
                begun = time.monotonic()
                lessons.write(makers[name](), file)
                say(f"lessons {name}: written in {duration(time.monotonic() - begun)}")


def _makers(place: Place, tokenizer: Path) -> Mapping[str, Callable[[], Iterator[Lesson]]]:
    """Returns name -> maker of the lessons."""
    size = place.size
    return {
        "echoes": lambda: lessons.echoes(size, pieces(tokenizer), ECHOES, 0),
        "copies": lambda: lessons.copies(size, COPIES, 0),
        **{
            f"copies-{number}": partial(lessons.copies, size, COPIES, number)
            for number in range(1, SETTLING + 1)
        },
        "relevant": lambda: lessons.traces(size, "relevant", tokenizer, DOCUMENTS, 0),
        "random": lambda: lessons.traces(size, "random", tokenizer, DOCUMENTS, 0),
        "relevant-more": lambda: lessons.traces(size, "relevant", tokenizer, MORE, 1),
        "relevant-long": lambda: lessons.traces(
            size, "relevant", tokenizer, LONG, 2, lengths=size.longer, spread=lessons.SPREAD
        ),
        "relevant-dense": lambda: lessons.traces(
            size, "relevant", tokenizer, DENSE, 3, lengths=size.longer, spread=lessons.CLOSE
        ),
        "random-more": lambda: lessons.traces(size, "random", tokenizer, MORE, 1),
        "direct": lambda: direct.lessons(size, DIRECT, 0),
    }


def _tokenizer(place: Place) -> Path:
    """Returns the folder of the size's tokenizer; creates it if missing."""
    from memagent_nano.tokenizer import new_tokenizer

    folder = place.root / "tokenizer"
    if not (folder / "tokenizer.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        with replacing(folder) as new:
            new_tokenizer(place.size).save_pretrained(new)
    return folder


def pieces(tokenizer: Path) -> list[str]:
    """Returns the texts of tokens, without those that are part of a character."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    texts = (backend.decode([i]) for i in range(backend.get_vocab_size()))
    return [text for text in texts if text.strip() and "\ufffd" not in text]
