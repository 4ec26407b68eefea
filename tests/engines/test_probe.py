"""`probe` against a real server: what it says of speculation, and that its advice works."""

import shlex
from typing import cast

import pytest
from tests.engines import commands
from tests.engines.fixtures import StartServer
from tests.engines.servers import EngineServer

from memagent.models.dialects import DIALECTS, DialectName
from memagent.models.probe import Probe, probe
from memagent.models.spec import open_model


async def probed(server: EngineServer) -> Probe:
    model = open_model(
        f"{server.engine}:{server.model}", base_url=server.url, api_key=server.api_key
    )
    (found,) = await probe(model)
    await model.aclose()
    assert isinstance(found, Probe)
    return found


def flags_of(engine: str) -> str:
    speculation = DIALECTS[cast("DialectName", engine)].speculation
    assert speculation
    return speculation.flags


async def test_speculation_is_off(engine: EngineServer) -> None:
    found = await probed(engine)
    assert found.speculation == "off"
    assert found.advice is not None
    assert flags_of(engine.engine) in found.advice


@pytest.mark.timeout(600)
async def test_its_advice_switches_speculation_on(
    start_server: StartServer, request: pytest.FixtureRequest
) -> None:
    engine = str(request.config.getoption("--engine"))
    if engine == "sglang":  # its n-gram worker needs compiled kernels that our stand-ins lack
        return
    flags = (*commands.REPORTING[engine], *shlex.split(flags_of(engine)))
    server = start_server(flags=flags)
    found = await probed(server)
    server.stop()
    assert (found.speculation, found.advice) == ("on", None)
