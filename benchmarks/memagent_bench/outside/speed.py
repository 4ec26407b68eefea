"""How long the BM25 index of BrowseComp-Plus takes, over generated documents.

Usage: python -m memagent_bench.outside.speed [--documents 100000] [--words 400] [--queries 20]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from memagent.tasks.origin import machine
from memagent_bench.outside.browsecomp import RESULTS
from memagent_bench.outside.corpus import Corpus

VOCABULARY = 200_000
"""Number of words, with frequencies by Zipf's law: about as many as a large collection of pages has."""
ASKED = 60
"""Words per query: about as many as a whole BrowseComp question."""


def main() -> None:
    """Measures, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=400, help="of a document")
    parser.add_argument("--queries", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "corpus.jsonl")
        with file.open("w") as lines:
            for docid, text in documents(arguments.documents, arguments.words):
                lines.write(json.dumps({"docid": docid, "text": text}) + "\n")
        corpus = Corpus([file], Path(folder))
        queries = [
            " ".join(text.split()[:ASKED])
            for _, text in documents(arguments.queries, arguments.words)
        ]
        built = _seconds(lambda: corpus.document("0"))
        took = sorted(
            _seconds(lambda query=query: corpus.search(query, RESULTS)) for query in queries
        )
        size = corpus.path.stat().st_size
        print(
            f"{arguments.documents:,} documents of {arguments.words} words ({file.stat().st_size / 1e6:,.0f} MB): "
            f"index {built:.0f} s, {size / 1e6:,.0f} MB; a query of {ASKED} words {statistics.median(took):.2f} s "
            f"(n={len(took)}, {took[0]:.2f} to {took[-1]:.2f}); {machine()}"
        )


def documents(number: int, words: int) -> Iterator[tuple[str, str]]:
    """Yields ids and texts, the same each time."""
    rng = random.Random(1)
    vocabulary = [f"w{n:x}" for n in range(VOCABULARY)]
    weights = list(accumulate(1 / (n + 2) for n in range(VOCABULARY)))
    for n in range(number):
        yield str(n), " ".join(rng.choices(vocabulary, cum_weights=weights, k=words))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
