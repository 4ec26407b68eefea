"""Data sets loaded by `datasets`: from the hub, a folder, or a parquet, JSON or CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from memagent.texts import expand, name_extra
from memagent_train.data.settings import HubSettings
from memagent_train.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

BUILDERS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".arrow": "arrow",
}
"""Builders that read a file, by its suffix."""
SAVED = ("state.json", "dataset_dict.json")
"""Files in a folder written by `save_to_disk`."""


class HubRows:
    """The rows of one split. They stay on disk: `datasets` maps them into memory.

    Args:
        settings: the source's settings.

    Raises:
        DataError: there is no such data set or split, or it can't be read; offline, it isn't in the cache.
    """

    def __init__(self, settings: HubSettings) -> None:
        self.name = f"{settings.path}:{settings.split}"
        self._rows = _load(settings)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields all rows in order."""
        for row in self._rows:
            yield cast("dict[str, Any]", row)

    def row(self, place: int) -> dict[str, Any]:
        """Reads one row. Blocks."""
        return cast("dict[str, Any]", self._rows[place])

    def where(self, place: int) -> str:
        """Names a row, for messages."""
        return f"{self.name!r}, row {place}"


def _load(settings: HubSettings) -> Dataset:
    path = expand(settings.path)
    if _is_file_path(settings.path) and not path.exists():
        raise DataError(
            f"there is no data file or folder {settings.path!r}: give its path as seen from the settings file or the "
            f"working directory, or a name on the hub"
        )
    try:
        # Imported here: it takes 2 s, and only this kind of source needs it.
        import datasets.config
        from datasets.exceptions import DatasetGenerationError
    except ImportError as error:
        raise DataError(name_extra("a source of kind 'hub'", "train")) from error
    # Otherwise a request tells the hub that a local file was read. `load_dataset` has no option for it.
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    try:
        if path.is_dir() and any((path / name).is_file() for name in SAVED):
            dataset: Any = _pick_split(datasets.load_from_disk(str(path)), settings)
        else:
            name, split = str(path) if path.is_dir() else settings.path, settings.split
            options: dict[str, Any] = {"name": settings.subset, "revision": settings.revision}
            if path.is_file():
                name, split = _builder(path), _rename_split(split)
                options = {"data_files": str(path)}
            try:
                builder = datasets.load_dataset_builder(name, **options)
                guessed = builder.name == "csv" and builder.info.features is None
            except ValueError:  # offline, the cached name of a CSV depends on these options
                guessed = not path.exists()
            if guessed:  # by pandas, which would read 007 as 7, and None or NA as missing
                columns = settings.columns
                texts = (columns.document, columns.question, columns.answers)
                options |= {"converters": dict.fromkeys(texts, str), "keep_default_na": False}
            dataset = datasets.load_dataset(name, split=split, **options)
    except DataError:
        raise
    except (
        Exception
    ) as error:  # errors of datasets, the hub's client, pyarrow and fsspec have no common base
        # This error only says that there was another one.
        bare = type(error) is DatasetGenerationError
        why = (error.__cause__ or error) if bare else error
        raise DataError(
            f"the data set {settings.path!r} (split {settings.split!r}) cannot be loaded: {type(why).__name__}: "
            f"{' '.join(str(why).split())}. Give a name on the hub (in the local cache if there "
            f"is no network), a folder, or a parquet, JSON or CSV file"
        ) from error
    return dataset


def _is_file_path(text: str) -> bool:
    """Returns whether a text is the path of a file or folder, not a name on the hub, which takes seconds to look up.

    Names of the form `owner/name` may end like a file.
    """
    path = Path(text)
    is_file = path.suffix.lower() in BUILDERS and (len(path.parts) != 2 or path.parent.is_dir())
    return is_file or text.startswith(("/", ".", "~"))


def _builder(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in BUILDERS:
        raise DataError(
            f"the data file {str(path)!r} has an unsupported format: give one that ends in {', '.join(BUILDERS)}"
        )
    return BUILDERS[suffix]


def _rename_split(split: str) -> str:
    """Renames the split of a single file, which `datasets` always calls `train`; `[...]` is kept."""
    name, bracket, part = split.partition("[")
    return f"train{bracket}{part}" if name else split


def _pick_split(saved: Any, settings: HubSettings) -> Any:
    """Returns a split of a data set saved by `save_to_disk`."""
    if not isinstance(saved, dict):
        return saved
    if settings.split not in saved:
        raise DataError(
            f"the data set {settings.path!r} has no split {settings.split!r} (it has {', '.join(map(repr, saved))})"
        )
    return cast("dict[str, Any]", saved)[settings.split]
