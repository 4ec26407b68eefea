import pytest
from tests.cli.conftest import Invoke

from memagent.cli.options import Cuts, Errors, Gate, Trust

SHARED = ("--question", "--model", "--base-url", "--tokenizer", "--window", "--chunk-tokens")
MORE = ("--memory-tokens", "--cuts", "--prompts", "--gate", "--encoding", "--errors", "--display")
MORE += ("--trust", "--overlap", "--temperature")


@pytest.mark.parametrize("command", ["ask", "estimate"])
def test_asking_and_estimating_take_the_same_options(invoke: Invoke, command: str) -> None:
    shown = invoke(command, "--help").output
    assert [option for option in SHARED + MORE if option not in shown] == []


def test_choices_are_those_of_the_library() -> None:
    from memagent.memory.plan import MemorySettings

    for cuts in Cuts:
        assert MemorySettings(cuts=cuts.value).cuts == cuts
    for gate in Gate:
        assert MemorySettings(gate=gate.value).gate == gate
    for trust in Trust:
        assert MemorySettings(trust=trust.value).trust == trust
    assert MemorySettings().sampling.temperature == 0.7, "as the help of --temperature says"
    assert set(Errors) == {"strict", "replace"}


def test_an_unknown_choice_names_the_known_ones(invoke: Invoke) -> None:
    done = invoke("ask", "book.txt", "Who?", "--gate", "ajar")
    assert done.exit_code == 2
    assert "update" in done.stderr
