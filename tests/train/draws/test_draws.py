"""The experiment with draws: its game, the expert and what it writes down, and the settings of the arms."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from memagent.errors import ConfigError, ToolError
from memagent_draws import material
from memagent_draws.arms import ARMS, LONG, make_start
from memagent_draws.command import app, table
from memagent_draws.drop import play
from memagent_draws.expert import Expert
from memagent_draws.game import LAST, WORDS, Draws
from memagent_draws.kept_values import count_kept
from memagent_draws.material import GRPO, SFT, START, TRACES, WHOLE, WIDE, WINDOW, Start, lay_out
from memagent_draws.tokenizer import draws_tokenizer
from memagent_train.config.sft import load_sft
from memagent_train.config.train import load_train
from memagent_train.rewards.open import open_rewards
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollout.template import Template
from memagent_train.rollouts import Rollout, Status
from memagent_train.runs.policy import load_model, load_tokenizer
from memagent_train.runs.traces import read_traces
from memagent_train.smoke.tokenizer import KINDS

ROOT = Path(__file__).parents[3]
TOKENIZER = Path(__file__).parents[2] / "data" / "tokenizer"


def test_one_draw_shows_the_value_and_draws_do_not_come_back() -> None:
    game = Draws(seed=3, difficulty=12)
    values = KINDS[game.task.removeprefix("ask ")]
    cards = [game.draw().split() for _ in range(12)]
    shown = [[word for word in card if word in values] for card in cards]
    assert [found for found in shown if found] == [[game.value]]
    assert {len(card) for card in cards[:-1]} == {WORDS}
    assert cards[-1][-1] == LAST
    with pytest.raises(ToolError, match=LAST):
        game.draw()
    assert (game.steps, game.over, game.verdict()) == (13, False, 0.0)
    assert Draws(seed=3, difficulty=12).draw().split() == cards[0]


@pytest.mark.parametrize("right", [True, False])
def test_only_the_first_answer_counts(right: bool) -> None:
    game = Draws(seed=3, difficulty=12)
    for _ in range(12):
        game.draw()
    assert game.finish(game.value if right else "none") is right
    game.finish(game.value)
    assert game.verdict() == float(right)


def test_an_answer_before_the_last_draw_is_wrong() -> None:
    game = Draws(seed=3, difficulty=12)
    for _ in range(11):
        game.draw()
    assert not game.finish(game.value)
    game.draw()
    assert not game.finish(game.value)


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Rollout]]:
    """The folder, and what an expert did that forgets nothing."""
    folder = tmp_path_factory.mktemp("draws") / "0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(material, "FORGETS", 0.0)
        return folder, lay_out(folder, Start(games=16), seed=0)


def test_the_expert_is_right_and_its_context_holds_four_draws(
    perfect: tuple[Path, list[Rollout]],
) -> None:
    for one in perfect[1]:
        assert (one.status, one.reward, one.overlong) == (Status.SCORED, 1.0, False)
        assert one.scores["summaries"] == 3
        for row in one.rows:
            kinds = [span.kind for span in row.spans]
            assert kinds.count("act") <= 5
            assert len(row.prompt_ids) + len(row.response_ids) <= 256


def test_small_cards_are_played_in_a_context_of_128_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_draws.game.WORDS", 20)
    monkeypatch.setattr(material, "FORGETS", 0.0)
    start = Start(games=8, window=128, play=("agent.tools.working_context=128",))
    for one in lay_out(tmp_path / "0", start, seed=0):
        assert (one.reward, one.overlong, one.scores["summaries"]) == (1.0, False, 3)
        assert all(len(row.prompt_ids) + len(row.response_ids) <= 128 for row in one.rows)


def test_the_least_context_is_that_of_the_documentation(tmp_path: Path) -> None:
    start = Start(games=1, play=("agent.tools.working_context=64",))
    (one,) = lay_out(tmp_path / "0", start, seed=0)
    said = re.search(r"needs at least (\d+)", one.error)
    assert said
    assert f"{said[1]} tokens for the game" in (ROOT / "docs/train.md").read_text("utf-8")


def test_what_it_did_is_imitated_and_every_arm_loads(
    perfect: tuple[Path, list[Rollout]],
) -> None:
    folder, rollouts = perfect
    sft = load_sft(folder / SFT)
    tokenizer = load_tokenizer(sft.model)
    assert sft.model.path == str(folder / START)
    traces = read_traces(sft.traces, Template(tokenizer), tokenizer.eos_token_id)
    assert len(traces.rows) == sum(len(one.rows) for one in rollouts)
    for arm in ARMS.values():
        agent = load_train(folder / arm.file, arm.settings).agent
        assert agent.use == ("tools" if arm.file == GRPO else "memagent_draws.drop:play")
    assert (folder / TRACES).is_file()
    with pytest.raises(ConfigError, match=r"has a .* already"):
        lay_out(folder, Start(games=1), seed=0)


def test_a_start_that_was_interrupted_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(material, "_play", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lay_out(tmp_path, Start(games=1), seed=0)
    assert lay_out(tmp_path, Start(games=1), seed=0)
    assert (tmp_path / SFT).exists()
    assert (tmp_path / TRACES).exists()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_expert_that_forgets_is_wrong_sometimes(tmp_path: Path) -> None:
    rewards = [one.reward for one in lay_out(tmp_path / "0", Start(games=24), seed=0)]
    assert 0.4 < sum(reward or 0.0 for reward in rewards) / len(rewards) < 1.0


def test_a_whole_game_fits_the_wide_window(tmp_path: Path) -> None:
    played = lay_out(tmp_path / "0", Start(games=8, window=WIDE, play=WHOLE), seed=0)
    assert {(one.reward, len(one.rows), one.scores["summaries"]) for one in played} == {(1.0, 1, 0)}


def test_the_expert_speaks_the_language_of_any_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "FORGETS", 0.0)
    replies = ("agent.tools.summary_tokens=12", "agent.tools.reply_tokens=12")
    start = Start(
        games=4,
        window=1024,
        play=("agent.tools.working_context=800", *replies),
        model=TOKENIZER,
    )
    for one in lay_out(tmp_path / "0", start, seed=0):
        assert (one.reward, one.overlong) == (1.0, False)
        assert 1 <= one.scores["summaries"] <= 5
    kept, shown = count_kept(tmp_path / "0" / TRACES, AutoTokenizer.from_pretrained(TOKENIZER))
    assert kept == shown > 1


def test_dropping_needs_no_summary_and_loses_what_was_drawn_early(
    perfect: tuple[Path, list[Rollout]],
) -> None:
    expert = Expert(draws_tokenizer(), window=WINDOW, forgets=0.0, seed=0)
    rolled = asyncio.run(
        roll(
            [RolloutRequest(one.sample, "g", one.rollout_id, 0) for one in perfect[1]],
            model=RolloutModel(expert, draws_tokenizer()),
            agent=play,
            verifier=open_rewards(load_train(perfect[0] / GRPO).reward),
        )
    )
    kinds = {span.kind for one in rolled for row in one.rows for span in row.spans}
    assert "summary" not in kinds
    assert 0.0 < sum(one.reward or 0.0 for one in rolled) < len(rolled)


@pytest.mark.parametrize("name", ["", LONG])
def test_a_large_model_has_half_a_million_weights_and_fewer_steps(
    tmp_path: Path, name: str
) -> None:
    start = make_start(name, large=True)._replace(games=1)
    lay_out(tmp_path / "0", start, seed=0)
    assert load_train(tmp_path / "0" / GRPO, start.play).optimizer.steps == 24
    policy = load_model(load_sft(tmp_path / "0" / SFT).model)
    assert policy.num_parameters() == pytest.approx(5e5, rel=0.05)
    assert policy.config.max_position_embeddings == start.window


def test_a_language_model_has_no_other_size(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["--out", str(tmp_path), "--only", "smol", "--large"])
    assert ran.exit_code == 2
    assert "leave out --large" in ran.output


def test_an_unknown_arm_is_named(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["--out", str(tmp_path), "--only", "supo,magic"])
    assert ran.exit_code == 2
    assert "there is no arm ['magic']" in ran.output
    assert table(tmp_path)[2:] == []


def test_seeds_of_an_arm_share_a_row_and_large_models_have_their_own(tmp_path: Path) -> None:
    for place, after in (("0", 0.9), ("1", 0.7), ("0-large", 0.5)):
        folder = tmp_path / place / "supo"
        folder.mkdir(parents=True)
        ends = ((0, 0.25), (24, after))
        right = {
            str(step): {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "n": 256}
            for step, mean in ends
        }
        figures = {"right": right, "kept": [None, after, 1.0], "overlong": after / 10}
        (folder / "figures.json").write_text(json.dumps(figures))
    assert table(tmp_path)[2:] == [
        "| SUPO | 2 | 0.250 (0.250-0.250) | 0.800 (0.700-0.900) | 0.80, 1.00 | 0.08 |",
        "| SUPO, 0.5M weights | 1 | 0.250 [0.150, 0.350] | 0.500 [0.400, 0.600] | 0.50, 1.00 | 0.05 |",
    ]


def test_the_page_has_the_committed_figures() -> None:
    page = (ROOT / "docs" / "supo.md").read_text(encoding="utf-8")
    rows = table(ROOT / "experiments" / "memagent_draws" / "results")[2:]
    assert len(rows) == 15
    assert [row for row in rows if row not in page] == []


def test_the_page_has_the_right_answers_after_more_summaries() -> None:
    page = (ROOT / "docs" / "supo.md").read_text(encoding="utf-8")
    found = ROOT / "experiments" / "memagent_draws" / "results" / "0"
    cells = [
        json.loads((found / f"lengths-{name}.json").read_text(encoding="utf-8"))["cells"]
        for name in ("warm", "supo")
    ]
    assert [before["length"] for before in cells[0]] == [8, 12, 24, 48, 92]
    for ends in zip(*cells, strict=True):
        said = " | ".join("{mean:.3f} [{low:.3f}, {high:.3f}]".format(**end) for end in ends)
        assert re.search(
            rf"^\| {ends[0]['length']} \| \d+ \| {re.escape(said)} \|$", page, re.MULTILINE
        )


def test_summaries_that_kept_the_value_are_counted(
    perfect: tuple[Path, list[Rollout]], tmp_path: Path
) -> None:
    kept, shown = count_kept(perfect[0] / TRACES, draws_tokenizer())
    assert kept == shown > 16
    lay_out(tmp_path / "0", Start(games=24), seed=0)
    kept, shown = count_kept(tmp_path / "0" / TRACES, draws_tokenizer())
    assert 0.6 < kept / shown < 1.0
