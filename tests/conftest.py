"""What holds for every test: no environment of the user's, no blocking of the event loop."""

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

from memagent import RunStore, threads

# Here, because pytest takes options only from plugins that it knows before it collects.
pytest_plugins = ["tests.engines.fixtures"]

# `make test-verl` runs those of verl alone. `make test-train` runs the others, in the environment that has torch.
collect_ignore = ["verl"]
if not importlib.util.find_spec("torch"):
    collect_ignore += ["models/transformers", "nano", "smol", "train"]

# `make test-engines` runs them, in the environment of an engine.
if not any(map(importlib.util.find_spec, ("vllm", "sglang"))):
    collect_ignore += ["models/in_process"]

# Read when the Hugging Face library is first imported, so it is set before any test module is.
os.environ["HF_HUB_OFFLINE"] = "1"

# No deadline: on a shared machine a slow example says nothing about the code.
# In CI the examples are the same each time; elsewhere each run looks at new ones.
settings.register_profile("default", deadline=None, max_examples=60, derandomize="CI" in os.environ)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SETTINGS_PREFIXES = ("MEMAGENT_", "OPENAI_")
PROXIES = {"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    """A store in a file of its own, closed at the end."""
    store = RunStore(tmp_path / "runs.sqlite")
    yield store
    store.close()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the user's settings, keys and proxies, and keep runs out of the user's state folder."""
    for name in list(os.environ):
        if name.startswith(SETTINGS_PREFIXES) or name.upper() in PROXIES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allows as many worker threads as at first: asking a server for counts allows more."""
    monkeypatch.setattr(threads, "allowed_workers", threads.WORKERS)


@pytest.fixture(autouse=True, scope="session")
def blockbuster() -> Iterator[BlockBuster]:
    """Raise BlockingError where memagent's own code blocks an event loop, of any thread.

    The sync API runs on a background event loop, so sync tests are covered as well.
    """
    detector = BlockBuster(scanned_modules=["memagent", "memagent_serve"])
    for function in detector.functions.values():
        # Importing a library when it is first used reads files, once.
        function.can_block_in("<frozen importlib._bootstrap>", {"_find_and_load"})
    # Building an agent reads a page of settings and wording, also in async code.
    for functions in detector.functions.values():
        functions.can_block_in("memagent/models/spec.py", {"look"})
        functions.can_block_in("memagent/models/spec.py", {"open_nano"})
        functions.can_block_in("memagent/models/policy.py", {"load"})
        functions.can_block_in("memagent_engines/in_process.py", {"find_model"})
        functions.can_block_in("memagent_engines/lora.py", {"read_lora"})
        # An engine's loop is its own.
        functions.can_block_in("memagent_engines/sharing.py", {"_start", "_end"})
        functions.can_block_in("memagent/prompts/loading.py", {"load"})
    # The sync API blocks its caller on purpose, a notebook's loop too.
    detector.functions["threading.Lock.acquire"].can_block_in("memagent/threads.py", {"run_sync"})
    detector.activate()
    yield detector
    detector.deactivate()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Has Ctrl-C interrupt this process, also where the tests run in a shell's background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
