"""A sample of training data."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from memagent.tasks import Sample


class TrainingSample(Sample):
    """A sample, with its score and the other columns of its data.

    Its `index` is its position in the source's data; in generated tasks it grows from epoch to epoch.
    """

    scorer: str = ""
    """Score of its task: a name in `memagent.tasks.SCORERS`, or `values`."""
    columns: Mapping[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    """For a row of the user's data: all columns other than document, question and answers."""
