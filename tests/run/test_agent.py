"""What every agent holds: a model, a store that is opened when it is needed, and their ends."""

import asyncio
import gc
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from memagent import RunStore
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    RequestRefused,
)
from memagent.models.limit import Limits
from memagent.models.scripted import ScriptedModel
from memagent.run.agent import Agent, OnEvent
from memagent.run.plan import Plan, Settings
from memagent.run.stream import EventStream, Loop
from memagent.runstore import RunRecord
from memagent.tokens.byte_bound import ByteBound


class Closing(ScriptedModel):
    """Counts how often it is closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class Plain(Agent[Settings]):
    """Only what every agent has."""

    settings = Settings()

    def run(self, loop: Loop[str], run_id: str, on_event: OnEvent | None) -> str:
        return self._finish(EventStream(loop, run_id), on_event)


def agent(model: ScriptedModel | str | None = None, **settings: Any) -> Plain:
    fields: dict[str, Any] = {
        "concurrency": 4,
        "limits": None,
        "store": None,
        **settings,
    }
    return Plain(model or Closing([]), **fields)


def test_the_store_is_opened_when_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with agent(store=path) as plain:
        assert not path.exists()
        store = weakref.ref(plain.store)
        assert plain.store is store()
        assert path.exists()
    gc.collect()
    assert store() is None, "a store that nobody needs is closed"
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


@pytest.mark.parametrize(
    "settings", [{"limits": 3}, {"limits": {"calls": 3}}, {"concurrency": 0}, {"store": 5}]
)
def test_settings_that_are_none_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"must be .*, got"):
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


def test_the_same_agent_over_another_model(tmp_path: Path) -> None:
    path, models = tmp_path / "runs.sqlite", [Closing([]), Closing([])]
    first = agent(models[0], store=path, limits=Limits(calls=3))
    other = first.with_model(models[1], seed=7)
    seeds = [a.settings.seed for a in (first, other, first.with_model(models[1]))]
    assert seeds == [0, 7, 0]
    assert other.store is first.store
    assert (other.limits, type(other)) == (first.limits, Plain)
    other.close()
    # It closes its model, and leaves the store to the one that opened it.
    assert [model.closed for model in models] == [0, 1]
    assert first.store.runs() == []
    first.close()


class Interrupted(Loop[str]):
    """Ctrl-C comes in the middle."""

    agent = "plain"

    def __init__(self, host: Plain, *, prepared: bool) -> None:
        self.host, self.source, self.prepared = host, {"name": ""}, prepared

    async def prepare(self, known: RunRecord | None) -> Plan:
        if not self.prepared:
            await self.run()
        return Empty(ScriptedModel(["m"]), ByteBound(), 9, Settings())

    async def run(self, *_: Any, **__: Any) -> str:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.sleep(10)
        return ""


class Empty(Plan):
    def binding(self) -> dict[str, Any]:
        return {"questions": ["?"]}


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("listens", [True, False])
def test_who_interrupts_a_run_is_told_how_to_resume_it(listens: bool) -> None:
    on_event = print if listens else None
    with agent() as plain:
        with pytest.raises(KeyboardInterrupt) as error:
            plain.run(Interrupted(plain, prepared=True), "r1", on_event)
        assert error.value.__notes__ == ["Resume the run with agent.resume('r1')."]
        assert plain.store.get("r1").status == "stopped"
        # Where no run was made there is nothing to resume.
        with pytest.raises(KeyboardInterrupt) as error:
            plain.run(Interrupted(plain, prepared=False), "r2", on_event)
        assert not hasattr(error.value, "__notes__")
