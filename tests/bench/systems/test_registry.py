"""Systems by name, and those of users."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.bench.systems.benches import PEERS, sample, scripted, setting

from memagent import RunStore
from memagent.errors import ConfigError
from memagent_bench import systems
from memagent_bench.systems.registry import SYSTEMS, WITHOUT_MODEL, choose_systems, open_system


def test_every_system_of_the_benchmark_is_there(store: RunStore) -> None:
    assert set(SYSTEMS) == {
        *("memory", "memory-gate", "direct", "direct-left", "direct-right", "direct-middle"),
        *("extractive", "regex", "bm25", "regex-model", "bm25-model", "map-reduce"),
        *(*PEERS, "published"),
    }
    assert set(SYSTEMS) >= WITHOUT_MODEL
    ours = SYSTEMS.keys() - set(PEERS)
    assert {open_system(name, setting(scripted(), store)).name for name in ours} == ours


def test_an_unknown_name_says_what_there_is(store: RunStore) -> None:
    with pytest.raises(ConfigError, match=r"'memery'; did you mean 'memory'\?.*map-reduce"):
        open_system("memery", setting(scripted(), store))
    for name in (":", "mine:", ":Mine"):
        with pytest.raises(ConfigError, match=r"package\.module:factory"):
            open_system(name, setting(scripted(), store))


async def test_a_users_own_system_as_the_docstring_has_it(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (systems.__doc__ or "").partition("```python\n")[2].partition("```")[0]
    (tmp_path / "own_system.py").write_text(code + "\n\nnumber = int\n")
    (tmp_path / "broken_system.py").write_text("def make(:")
    monkeypatch.syspath_prepend(str(tmp_path))
    system = open_system("own_system:FirstLine", setting(scripted(), store))
    outcome = await system.answer(sample("One.\nTwo."), "r1")
    assert (system.name, outcome.answer) == ("first-line", "One.")
    with pytest.raises(ConfigError, match="Nobody"):
        open_system("own_system:Nobody", setting(scripted(), store))
    with pytest.raises(ConfigError, match="PYTHONPATH"):
        open_system("no_such_module:X", setting(scripted(), store))
    with pytest.raises(ConfigError, match="not a system"):
        open_system("builtins:repr", setting(scripted(), store))
    with pytest.raises(ConfigError, match="SyntaxError"):
        open_system("broken_system:make", setting(scripted(), store))
    with pytest.raises(ConfigError, match="TypeError"):
        open_system("own_system:number", setting(scripted(), store))


def test_systems_are_chosen_once_each() -> None:
    assert choose_systems("all") == list(SYSTEMS)
    assert choose_systems(" bm25, my:F ,memory,my:F,bm25") == ["bm25", "my:F", "memory"]
    with pytest.raises(ConfigError, match="'memry'; did you mean 'memory'"):
        choose_systems("my:F,memry")


@pytest.mark.parametrize(
    ("name", "module"),
    [("langchain-refine", "langchain_classic"), ("llamaindex-refine", "llama_index.core")],
)
def test_a_peer_that_is_not_installed_names_the_command(
    name: str, module: str, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"memagent_bench.systems.{name.replace('-', '_')}"
    monkeypatch.delitem(sys.modules, ours, raising=False)
    for known in [m for m in sys.modules if m.startswith(module)]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'path/to/memagent\[peers\]'"):
        open_system(name, setting(scripted(), store))


def test_the_registry_imports_no_framework() -> None:
    code = (
        "import sys, memagent_bench.systems.registry;"
        "print({m.partition('.')[0] for m in sys.modules} & {'langchain_core', 'llama_index', 'langsmith', 'nltk'})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(systems.__file__).parents[2])},
    )
    assert done.stdout.strip() == "set()"
