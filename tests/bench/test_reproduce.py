"""The kit that measures a published checkpoint again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.fakes import record
from tests.models.chat_server import Script, say
from typer.testing import Result

from memagent.errors import ConfigError
from memagent.tasks.statistics import wilson
from memagent_bench.records import read_records
from memagent_bench.reproduce.protocol import CHECKPOINTS, SYSTEM, parts, settings
from memagent_bench.reproduce.verdict import Agreement, verdicts

Invoke = Callable[..., Result]
BOTH = ("qa", "ruler")


@pytest.fixture
def served(server: Script, tmp_path: Path) -> tuple[str | Path, ...]:
    server.default = say("Therefore, the answer is 17.")
    served = ("--base-url", server.url, "--model", "tiny", "--tokenizer", "bytes")
    return (*served, "--prompts", "boxed", "--out", tmp_path / "out")


# --- the protocol as data


def test_the_published_settings() -> None:
    given = settings(7)
    assert (given.window, given.chunk_tokens, given.memory_tokens) == (8192, 5000, 1024)
    assert (given.cuts, given.trust, given.gate, given.seed) == ("exact", "exact", "off", 7)
    assert (given.sampling.temperature, given.sampling.top_p) == (0.7, 0.95)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_the_published_rows(checkpoint: str) -> None:
    qa, ruler = parts(checkpoint, BOTH, None)
    assert (qa.suite, qa.tasks, len(qa.lengths)) == ("qa", ("hotpotqa",), 10)
    assert (qa.lengths[0], qa.lengths[-1]) == (7 * 1024, 3584 * 1024)
    assert (ruler.suite, len(ruler.tasks)) == ("ruler", 11)
    assert [length // 1024 for length in ruler.lengths] == [8, 16, 32, 64, 128, 256, 512]
    assert not {"cwe", "qa_2"} & set(ruler.tasks)
    assert "qa_1" in ruler.table.tasks_at(256 * 1024)
    assert "qa_1" not in ruler.table.tasks_at(512 * 1024)
    assert qa.table.samples == ruler.table.samples == 128


def test_figures_are_those_of_the_checkpoint() -> None:
    small, large = (parts(name, ("qa",), None)[0] for name in ("memagent-7b", "memagent-14b"))
    assert (small.figure(7168), large.figure(7168)) == pytest.approx((0.8203, 0.8359))


def test_lengths_are_chosen_among_the_published_ones() -> None:
    (only,) = parts("memagent-7b", BOTH, [8192])
    assert (only.suite, only.lengths) == ("ruler", (8192,))
    with pytest.raises(
        ConfigError, match="there are no published figures for 'memagent-7b' at 9K, only at 7K, 8K"
    ):
        parts("memagent-7b", BOTH, [8192, 9216])
    with pytest.raises(ConfigError, match="did you mean 'memagent-7b'"):
        parts("memagent-8b", BOTH, None)


# --- verdicts


def measured(rate: float, n: int = 128, missing: int = 0) -> list[Any]:
    right = round(rate * n)
    return [
        record(
            index,
            suite="qa",
            task="hotpotqa",
            length=7168,
            system=SYSTEM,
            scorer="sub_exact_match",
            score=None if index >= n - missing else float(index < right),
            scores={} if index >= n - missing else {"sub_exact_match": float(index < right)},
        )
        for index in range(n)
    ]


@pytest.mark.parametrize(
    ("rate", "agreement"),
    [
        (0.82, Agreement.CONSISTENT),
        (0.74, Agreement.CONSISTENT),
        (0.70, Agreement.BELOW),
        (0.88, Agreement.CONSISTENT),
        (0.93, Agreement.ABOVE),
    ],
)
def test_two_means_of_128_agree_unless_they_are_far_apart(
    rate: float, agreement: Agreement
) -> None:
    (part,) = parts("memagent-7b", ("qa",), [7168])
    (verdict,) = verdicts(part, measured(rate))
    assert verdict.agreement is agreement
    assert verdict.published.mean == 0.8203
    assert (verdict.published.low, verdict.published.high) == wilson(0.8203, 128)
    assert verdict.difference is not None
    assert verdict.difference.mean == pytest.approx(round(rate * 128) / 128 - 0.8203)


def test_missing_answers_count_as_wrong_and_are_shown() -> None:
    (part,) = parts("memagent-7b", ("qa",), [7168])
    (verdict,) = verdicts(part, measured(0.82, missing=40))
    assert verdict.measured is not None
    assert verdict.measured.unscored == 40
    assert verdict.agreement is Agreement.BELOW


def test_no_verdict_before_all_samples_are_there() -> None:
    (part,) = parts("memagent-7b", ("qa",), [7168])
    assert verdicts(part, [])[0].measured is None
    (verdict,) = verdicts(part, measured(0.2)[:64])
    assert verdict.agreement is Agreement.INCOMPLETE
    assert verdict.measured is not None
    others = [r.model_copy(update={"system": "direct"}) for r in measured(0.2)]
    assert verdicts(part, others)[0].measured is None


# --- the command


def test_a_dry_run_without_data_says_what_it_takes_and_needs(
    invoke: Invoke, server: Script, served: tuple[str, ...]
) -> None:
    done = invoke("reproduce", "memagent-7b", *served, "--dry-run")
    assert done.exit_code == 0, done.output
    assert server.bodies == []
    assert "needed: HotpotQA was not found" in done.stderr
    assert "needed: SQuAD was not found" in done.stderr
    assert "other wording" in done.stderr
    assert "qa, memory at 3584K" in done.stdout
    assert "ruler, memory at 512K" in done.stdout
    assert "11,008 records" in done.stdout, "128 * (10 + 11 * 6 + 10)"
    said = json.loads(
        invoke("reproduce", "memagent-7b", *served, "--dry-run", "--display", "json").stdout
    )["forecast"]
    tokens = {share["length"]: share for share in said["shares"] if share["suite"] == "ruler"}
    assert tokens[8192]["records"] == 128 * 11
    assert tokens[524288]["records"] == 128 * 10


def test_calls_are_those_of_the_published_arithmetic(
    invoke: Invoke, served: tuple[str, ...], tmp_path: Path
) -> None:
    chars = Path(__file__).parents[1] / "data" / "tokenizer"
    given = [str(chars) if arg == "bytes" else arg for arg in served]
    more = ("--length-tokenizer", chars, "--dry-run", "--display", "json", "--lengths", "8k,512k")
    done = invoke("reproduce", "memagent-14b", *given, *more)
    assert done.exit_code == 0, done.output
    shares = {s["length"]: s for s in json.loads(done.stdout)["forecast"]["shares"]}
    assert shares[8192]["calls"] == 128 * 11 * (2 + 1)
    assert shares[524288]["calls"] == 128 * 10 * (105 + 1)


def test_a_dry_run_with_data_needs_nothing(
    invoke: Invoke, served: tuple[str, ...], squad: Path
) -> None:
    more = ("--dry-run", "--suites", "ruler", "--squad", squad, "--speed", "1000")
    done = invoke("reproduce", "memagent-7b", *served, *more)
    assert done.exit_code == 0, done.output
    assert "needed" not in done.stderr
    assert "at 1,000 tokens/s" in done.stdout


def test_a_dry_run_asks_no_server(invoke: Invoke, served: tuple[str, ...], tmp_path: Path) -> None:
    nobody = ("--base-url", "http://127.0.0.1:9/v1", "--model", "tiny", *served[-4:])
    more = ("--suites", "ruler", "--lengths", "8k", "--dry-run")
    done = invoke("reproduce", "memagent-7b", *nobody, *more)
    assert done.exit_code == 0, done.output
    assert "GPT-2's tokenizer" in done.stderr
    assert "1,408 records" in done.stdout
    assert not (tmp_path / "out").exists()


def test_a_dry_run_leaves_out_what_is_done(
    invoke: Invoke, server: Script, served: tuple[str, ...], squad: Path
) -> None:
    server.serve_models({"id": "tiny", "max_model_len": 9216})
    more = ("--suites", "ruler", "--lengths", "8k", "--squad", squad)
    invoke("reproduce", "memagent-7b", *served, *more, "--yes", "--max-calls", "160")
    nobody = ("--base-url", "http://127.0.0.1:9/v1", *served[2:])
    done = invoke("reproduce", "memagent-7b", *nobody, *more, "--dry-run", "--display", "json")
    assert done.exit_code == 0, done.output
    assert 0 < json.loads(done.stdout)["forecast"]["records"] < 1408


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "HotpotQA was not found"),
        (("--suites", "ruler"), "SQuAD was not found"),
        (("--suites", "books"), "there is no suite 'books'"),
    ],
)
def test_nothing_begins_without_its_data(
    invoke: Invoke, server: Script, served: tuple[str, ...], args: tuple[str, ...], said: str
) -> None:
    done = invoke("reproduce", "memagent-7b", *served, "--yes", *args)
    assert done.exit_code == 2
    assert said in done.stderr
    assert server.bodies == []


def test_the_wording_has_to_be_named(invoke: Invoke, server: Script, tmp_path: Path) -> None:
    served = ("--base-url", server.url, "--model", "tiny", "--out", tmp_path / "out")
    done = invoke("reproduce", "memagent-7b", *served, "--dry-run")
    assert done.exit_code == 2
    assert "--prompts FILE" in done.stderr


def test_nothing_begins_without_a_yes(
    invoke: Invoke, server: Script, served: tuple[str, ...], squad: Path, tmp_path: Path
) -> None:
    more = ("--suites", "ruler", "--squad", squad, "--speed", "1000")
    done = invoke("reproduce", "memagent-7b", *served, *more)
    assert done.exit_code == 2
    assert "give --yes" in done.stderr
    assert "in all" in done.stdout
    assert invoke("reproduce", "memagent-7b", *served, *more, "--display", "none").stdout == ""
    assert server.bodies == []
    assert not (tmp_path / "out").exists()


def test_it_runs_stops_at_a_limit_and_gives_verdicts(
    invoke: Invoke,
    server: Script,
    served: tuple[str, ...],
    squad: Path,
    tmp_path: Path,
) -> None:
    server.serve_models({"id": "tiny", "max_model_len": 9216})
    more = ("--suites", "ruler", "--lengths", "8k", "--squad", squad, "--yes", "--display", "json")
    done = invoke("reproduce", "memagent-7b", *served, *more, "--max-calls", "40")
    assert done.exit_code == 6, done.output
    said = json.loads(done.stdout)
    (verdict,) = said["verdicts"]
    assert verdict["agreement"] == "incomplete"
    assert verdict["published"] == pytest.approx(0.9303)
    assert verdict["n"] == len(read_records(tmp_path / "out"))
    assert said["runs"][0]["limit"].startswith("the limit calls=40 is reached")
    assert len(server.bodies) == 40 + 16, "the speed is measured first, by a call for each at once"
    assert {body["temperature"] for body in server.bodies} == {0.7}
    assert {body["max_tokens"] for body in server.bodies} == {1024}
