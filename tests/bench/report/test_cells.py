"""Records sorted into suites, labels, cells."""

from __future__ import annotations

from tests.bench.report.made import K, provenance, record, run

from memagent_bench.published import RULER_TASKS
from memagent_bench.report.cells import sort_records


def test_one_model_needs_no_name() -> None:
    (suite,) = sort_records({"run": run(n=2)})
    assert suite.labels == ("memory", "direct")
    assert suite.tasks == RULER_TASKS
    assert suite.lengths == (8 * K, 32 * K, 128 * K)
    assert [r.index for r in suite.cells["direct", "vt", 32 * K]] == [0, 1]
    assert len(suite.records) == 2 * 13 * 3 * 2


def test_several_models_are_part_of_the_label() -> None:
    models = ("vllm:Qwen/Qwen3-4B", "openai:gpt-oss-20b")
    (suite,) = sort_records({m[:4]: [record(provenance=provenance(m))] for m in models})
    assert suite.labels == ("memory · Qwen3-4B", "memory · openai:gpt-oss-20b")


def test_models_whose_last_part_is_the_same_keep_their_whole_names() -> None:
    models = ("vllm:a/model", "vllm:b/model")
    (suite,) = sort_records({m[-7]: [record(provenance=provenance(m))] for m in models})
    assert suite.labels == ("memory · vllm:a/model", "memory · vllm:b/model")


def test_the_same_sample_in_two_folders_is_two_runs() -> None:
    (suite,) = sort_records({"monday": [record()], "tuesday": [record(score=0.0)]})
    assert suite.labels == ("memory · monday", "memory · tuesday")
    assert [r.score for r in suite.records] == [1.0, 0.0]


def test_folders_that_complete_each_other_are_one_run() -> None:
    (suite,) = sort_records({"short": [record()], "long": [record(length=128 * K)]})
    assert suite.labels == ("memory",)
    assert suite.lengths == (8 * K, 128 * K)


def test_answers_without_a_text_are_no_part_of_a_mean() -> None:
    own = [record(task, suite="qa") for task in ("squad", "squad_no_context")]
    (suite,) = sort_records({"run": own})
    assert suite.labels == ("memory", "memory (no context)")
    assert suite.tasks == ("squad",)
    assert [len(suite.of(label)) for label in suite.labels] == [1, 1]


def test_suites_stand_apart() -> None:
    ruler, own = sort_records(
        {"run": [record("vt"), record("mine", suite="own"), record("cwe"), record("niah_single_1")]}
    )
    assert (ruler.name, ruler.tasks) == ("ruler", ("niah_single_1", "vt", "cwe"))
    assert (own.name, own.tasks) == ("own", ("mine",))


def test_what_was_not_run_is_not_there() -> None:
    (suite,) = sort_records(
        {
            "run": [
                record("vt"),
                record("cwe"),
                record("vt", length=32 * K),
                record("vt", system="direct"),
            ]
        }
    )
    assert suite.tasks_of("memory", 8 * K) == ("vt", "cwe")
    assert suite.tasks_of("memory", 32 * K) == ("vt",)
    assert suite.lengths_of("direct") == (8 * K,)
    assert suite.shared_tasks(("memory", 8 * K), ("direct", 8 * K)) == ("vt",)
    assert suite.strata("direct", 8 * K, ["cwe"]) == []


def test_systems_stand_in_their_usual_order_whichever_ended_first() -> None:
    ended = ("my.own:system", "bm25", "direct", "memory-gate", "memory")
    (suite,) = sort_records({"run": [record(system=name) for name in ended]})
    assert suite.labels == ("memory", "memory-gate", "direct", "bm25", "my.own:system")
