"""A server's numbers, from the text that it has for Prometheus."""

from __future__ import annotations

import re

SAMPLE = re.compile(r"(?P<key>[\w:]+(?:\{.*\})?) (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics(dict[str, float]):
    """All numbers of a server at one moment, by name and labels as the server writes them.

    For example `{'vllm:num_requests_running{engine="0",model_name="tiny"}': 0.0, ...}`.
    """

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Reads the text of `/metrics`."""
        matches = filter(None, map(SAMPLE.fullmatch, text.splitlines()))
        return cls((match["key"], float(match["value"])) for match in matches)

    def total(self, name: str, **labels: str) -> float:
        """Returns the sum of the numbers with this name and these labels; 0 if there are none."""
        found = 0.0
        for key, value in self.items():
            its_name, _, its_labels = key.partition("{")
            if its_name == name and labels.items() <= dict(LABEL.findall(its_labels)).items():
                found += value
        return found
