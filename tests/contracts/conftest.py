"""Which models the contract is checked with: `--engine` names a real one."""

from typing import Any

import pytest
from tests.contracts.subjects import ENGINES, LOCAL, Subject
from tests.engines import commands, venvs
from tests.engines.fixtures import API_KEY, StartServer
from tests.engines.servers import EngineServer

from memagent.models.openai import OpenAIModel
from memagent.models.policy import policy_of
from memagent.models.spec import FOLDER, open_nano

NEEDS_SERVER = "served"
NANO = "nano"
"""The package's own policy, at the real server too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    engine = metafunc.config.getoption("--engine", default=None)
    if "subject" in metafunc.fixturenames:
        subjects = [engine, NANO] if engine else list(LOCAL)
        metafunc.parametrize("subject", subjects, indirect=True)
    served = [engine, NANO] if engine else list(ENGINES)
    if served and NEEDS_SERVER in metafunc.fixturenames:
        metafunc.parametrize(NEEDS_SERVER, served, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs an engine is no test, and no skipped one either, where there is none."""
    if ENGINES or config.getoption("--engine", default=None):
        return
    left = [i for i in items if NEEDS_SERVER in getattr(i, "fixturenames", ())]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    """One kind of model."""
    if request.param in LOCAL:
        return LOCAL[request.param]()
    return _served(request)


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Subject:
    """A model of an engine, served or in this process: it gives ids."""
    if request.param in ENGINES:
        return ENGINES[request.param]()
    return _served(request)


@pytest.fixture(scope="module")
def nano_server(request: pytest.FixtureRequest, start_server: StartServer) -> EngineServer:
    """The package's own policy at the engine that `--engine` names."""
    engine: str = request.config.getoption("--engine") or ""
    flags = (*commands.REPORTING[engine], commands.MODEL_FLAG[engine], str(FOLDER))
    return start_server(window=policy_of(open_nano()).window, api_key=API_KEY, flags=flags)


def _served(request: pytest.FixtureRequest) -> Subject:
    """`OpenAIModel` at the real server of a parameter."""
    nano = request.param == NANO
    engine: EngineServer = request.getfixturevalue("nano_server" if nano else "engine")

    def make(**options: Any) -> OpenAIModel:
        return OpenAIModel(
            engine.model,
            base_url=engine.url,
            api_key=engine.api_key,
            **options,
        )

    return Subject(
        engine.engine,
        make,
        engine.window,
        engine.requests,
        engine=True,
        thinks=not nano,
        secret=engine.api_key or "",
        tokenizers=(None, str(FOLDER if nano else venvs.tiny_model())),
        **({"talk": _copied(), "reading": _own_reading()} if nano else {}),
    )


def _own_reading() -> dict[str, Any]:
    """How the package's own policy wants to read, which a server cannot say.

    With wording that it never saw it now and then says nothing, which is asked again, and counted.
    """
    policy = policy_of(open_nano())
    return {**policy.reading(), "prompts": policy.prompts}


def _copied() -> str:
    """A prompt of the package's own policy: what it holds of two people is to be written again."""
    prompts = policy_of(open_nano()).prompts
    assert prompts
    (message,) = prompts.render(
        "update",
        question="How many coins has the master of Nudimi?",
        memory="- Nudimi Tusozu\n- Tusozu 4821",
        chunk="It rained all day.",
    )
    return message.content
