"""A sample of training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from memagent.tasks import Sample


class TrainingSample(Sample):
    """A sample, with how it is scored and what else its data say of it.

    Its `index` is its place in the source's data; in generated tasks it grows from epoch to epoch.
    """

    scorer: str = ""
    """The score by which its task is measured: a name in `memagent.tasks.SCORERS`, or `values`."""
    columns: Mapping[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    """Of a row of the user's data all columns but those of document, question and answers."""
