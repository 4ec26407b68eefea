"""Which models the contract is checked with: `--engine` names a real one."""

from typing import Any

import pytest
from tests.contracts.subjects import LOCAL, Subject
from tests.engines import venvs
from tests.engines.servers import EngineServer

from memagent.models.openai import OpenAIModel

NEEDS_SERVER = "streaming"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    engine = metafunc.config.getoption("--engine", default=None)
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", [engine] if engine else list(LOCAL), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs a server is no test, and no skipped one either, where none was asked for."""
    if config.getoption("--engine", default=None):
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
    return request.getfixturevalue("engine_subject")


@pytest.fixture
def streaming(request: pytest.FixtureRequest) -> Subject:
    """A served model: it streams, and gives ids."""
    return request.getfixturevalue("engine_subject")


@pytest.fixture
def engine_subject(engine: EngineServer) -> Subject:
    """`OpenAIModel` at the real server that `--engine` names."""

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
        thinks=True,
        secret=engine.api_key or "",
        tokenizers=(None, str(venvs.tiny_model())),
    )
