"""What records say of their origin, and what a reader is warned of."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.report.made import K, provenance, record, run

from memagent.messages import Sampling
from memagent_bench.record import Record
from memagent_bench.report.cautions import cautions
from memagent_bench.report.cells import sort_records
from memagent_bench.report.facts import Fact, provenance_facts, task_facts


def facts(*records: Record) -> dict[str, Fact]:
    suites = sort_records({"run": list(records)})
    rows = [*provenance_facts(suites), *(fact for suite in suites for fact in task_facts(suite))]
    return {fact.name: fact for fact in rows}


def warned(*records: Record) -> str:
    return "\n".join(cautions(sort_records({"run": list(records)})))


def test_one_value_for_all() -> None:
    found = facts(*run(n=1))
    assert found["model"].values == (("vllm:Qwen/Qwen3-4B", ""),)
    assert found["sampling"].values == (("temperature 0.7, top-p 0.95", ""),)
    assert found["commit"].values == (("c5d985f0c5d9", ""),)
    assert found["haystack"].values == (("essays (shipped book)", ""),)
    assert found["nested lengths"].values == (("no", ""),)
    assert found["samples per task and length"].values == (("1", ""),)
    assert found["run on"].values == (("2026-11-21", ""),)
    assert "query-first" in found["question"].values[0][0]


def test_values_that_differ_name_their_holders() -> None:
    found = facts(
        record("vt", facts={"rounds": 1}),
        record("vt", length=32 * K, facts={"rounds": 3}),
        record("cwe", scorer="f1", facts={"rounds": 1}),
        record(
            "cwe",
            length=32 * K,
            facts={"rounds": 3},
            system="direct",
            provenance=provenance(seed=7),
        ),
    )
    assert found["rounds of filler"].values == (("1", "at 8K"), ("3", "at 32K"))
    assert found["scorer"].values == (("string_match_all", ""), ("f1", "cwe at 8K"))
    assert found["seed"].values == (("42", "memory"), ("7", "direct"))


def test_systems_without_a_model_are_named() -> None:
    found = facts(record(), record(system="regex"), record(system="extractive"))
    assert found["without the model"].values[0][0].startswith("extractive and regex: no language")
    assert "without the model" not in facts(record())


def test_no_server_no_commit() -> None:
    found = facts(record(provenance=provenance(server=None, commit=None, dirty=None)))
    assert "same process" in found["server"].values[0][0]
    assert "unknown" in found["commit"].values[0][0]


def test_a_good_run_has_nothing_to_be_warned_of() -> None:
    tasks = [record(t, index=i) for t in run_tasks() for i in range(100)]
    assert warned(*tasks) == ""


def run_tasks() -> list[str]:
    return list(dict.fromkeys(r.task for r in run(n=1)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"commit": "f" * 40}, "differ in their commit: c5d985f0c5d9 and ffffffffffff."),
        ({"sampling": Sampling(temperature=0)}, "differ in their sampling"),
        ({"prompts": "boxed:1"}, "differ in their prompt set"),
        ({"packages": {"memagent": "0.2"}}, "differ in their packages"),
        ({"dirty": True}, "50% of the records come from a source tree with uncommitted changes"),
    ],
)
def test_mixed_provenance(changed: dict[str, Any], words: str) -> None:
    assert words in warned(record(), record(index=1, provenance=provenance(**changed)))


def test_machines_may_differ() -> None:
    assert "machine" not in warned(
        record(), record(index=1, provenance=provenance(machine="other"))
    )


def test_unscored() -> None:
    found = warned(record(), record(index=1, score=None), record(system="direct"))
    assert "1 of 3 samples have no score (50% of memory)" in found


def test_different_documents_and_different_sets() -> None:
    assert "different documents with the same numbers in niah_single_1 at 8K" in warned(
        record(), record(system="direct", document="0" * 16)
    )
    assert "different sets of samples in niah_single_1 at 8K" in warned(
        record(), record(index=1), record(system="direct")
    )


def test_partial_tasks() -> None:
    found = warned(record("vt"), record("cwe"), record("vt", length=32 * K))
    assert "over fewer tasks than others: memory at 32K (1 of 2)" in found
    assert "Only 2 of RULER's 13 tasks" in found


def test_few_samples_say_how_good_they_are() -> None:
    """Wilson at 0.5 with 25: 1.96 sqrt(0.25/25 + 0.96/625) / 1.154 is 0.18."""
    assert "25 samples: near 50, such a score has a margin of ±18 points" in warned(
        *(record(index=i) for i in range(25))
    )


def test_samples_that_share_documents_are_counted_once_for_all_systems() -> None:
    made = [
        record("own", index=i, system=system, suite="samples", document=f"{i // 30}" * 16)
        for system in ("memory", "direct")
        for i in range(120)
    ]
    other = [record("other", index=i, suite="samples") for i in range(8)]
    found = warned(*made, *other)
    assert found.count("samples share") == 1
    assert "120 samples share 4 documents: their answers are not independent" in found
    twice = [record(index=i, document=f"{max(i, 1)}" * 16) for i in range(9)]
    assert "share" not in warned(*twice), "one document of eight was read twice"
    cluster = [record(index=i, document=f"{min(i, 80):016}") for i in range(100)]
    assert "100 samples share 81 documents" in warned(*cluster), "twenty are about one"
    control = [record("squad_no_context", index=i, document="0" * 16) for i in range(8)]
    assert "share" not in warned(*control)


def test_repetition() -> None:
    found = warned(*run(("memory",), lengths=(512 * K, 1024 * K), n=1))
    assert "filler of every task repeats from 1M on (up to 2 times" in found


def test_noise_repeats_by_design() -> None:
    noise = {"haystack": "noise", "rounds": 300}
    assert "repeat" not in warned(record(facts=noise))
    found = warned(record(facts=noise), record("niah_single_2", facts=noise | {"haystack": "book"}))
    assert "filler of niah_single_2 repeats" in found


def test_resumed() -> None:
    assert "1 sample resumed after an interruption" in warned(record(resumed=True))


def test_several_suites_are_told_apart() -> None:
    assert "Long QA: 1 of 1 sample have no score" in warned(
        record(), record("hotpotqa", suite="qa", score=None)
    )
