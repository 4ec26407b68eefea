"""What every agent holds: a model, a store that is opened when it is needed, and their ends."""

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from memagent import RunStore
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    RequestRefused,
    StoreError,
)
from memagent.models.limit import Limits
from memagent.models.scripted import ScriptedModel
from memagent.run.agent import Agent


class Closing(ScriptedModel):
    """Counts how often it is closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def agent(model: ScriptedModel | None = None, **settings: Any) -> Agent:
    fields: dict[str, Any] = {"concurrency": 4, "limits": None, "store": None, **settings}
    return Agent(model or Closing([]), **fields)


def test_the_store_is_opened_when_it_is_needed_and_closed_by_who_opened_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with agent(store=path) as own:
        assert not path.exists()
        store = own.store
        assert own.store is store
        assert path.exists()
    with pytest.raises(StoreError, match="closed"):
        store.runs()
    given = RunStore(path)
    with agent(store=given) as borrowing:
        assert borrowing.store is given
    assert given.runs() == []
    given.close()


def test_the_default_store_is_in_the_users_state_folder(tmp_path: Path) -> None:
    with agent(store="default") as one:
        assert one.store.path == tmp_path / "state" / "memagent" / "runs.sqlite"


async def test_an_agent_closes_its_model() -> None:
    model = Closing([])
    async with agent(model):
        assert model.closed == 0
    assert model.closed == 1


@pytest.mark.parametrize("settings", [{"limits": 3}, {"limits": {"calls": 3}}, {"concurrency": 0}])
def test_settings_that_are_none_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"give"):
        agent(**settings)
    assert agent(limits=Limits(calls=3)).limits == Limits(calls=3)


@pytest.mark.parametrize("error", [AuthenticationFailed, RequestRefused, ConnectionFailed])
async def test_a_server_that_does_not_tell_its_window(error: type[Exception]) -> None:
    class Silent(Closing):
        async def window(self) -> int | None:
            raise error("no")

    silent = agent(Silent([]))
    with pytest.raises(error):
        await silent.reported_window(None)
    if error is ConnectionFailed:  # it would not answer a request either
        with pytest.raises(error):
            await silent.reported_window(4096)
    else:
        assert await silent.reported_window(4096) is None
    assert await agent(Closing([], window=512)).reported_window(4096) == 512


@pytest.mark.usefixtures("ctrl_c")
def test_who_interrupts_a_run_is_told_how_it_goes_on() -> None:
    with agent() as one:

        async def interrupted() -> None:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(10)

        one.store.create("r1", {"questions": []}, {}, {})
        with pytest.raises(KeyboardInterrupt) as error:
            one._finish("r1", interrupted())
        assert error.value.__notes__ == ["The run goes on with agent.resume('r1')."]
        with pytest.raises(KeyboardInterrupt) as error:
            one._finish("r2", interrupted())
        assert not hasattr(error.value, "__notes__")
