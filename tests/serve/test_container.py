"""The container's file: what is in the image, and its command as it would run there. `make dist` runs its pip steps.

No image is built here: that takes a container engine and a registry.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.serve.sockets import port_of, root

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text()
LINES = re.sub(r"(?m)^#.*\n", "", TEXT).replace("\\\n", " ").splitlines()
STEPS = [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in LINES) if word]
ENTRYPOINT = json.loads(dict(STEPS)["ENTRYPOINT"])
KEY = "the-key-of-a-caller-31d0"
PARTS = [
    {"type": "text", "text": "Pierre came in. " * 2000},
    {"type": "text", "text": "Who came in?"},
]
BODY = {"model": "extractive", "messages": [{"role": "user", "content": PARTS}]}


def said(step: str) -> list[str]:
    """What follows a word of the file, in its order."""
    return [rest for word, rest in STEPS if word == step]


def test_nothing_in_it_is_secret_and_nobody_is_root() -> None:
    assert said("ARG") == []
    assert re.findall(r"\w+(?==)", said("ENV")[0]) == ["XDG_STATE_HOME", "XDG_CACHE_HOME"]
    assert said("VOLUME") == ["/data"]
    assert int(said("USER")[-1]) > 0
    last_of_root = STEPS.index(("USER", said("USER")[-1]))
    assert "RUN" not in [word for word, _ in STEPS[last_of_root:]]


def test_what_it_copies_is_what_the_wheel_is_made_of() -> None:
    copied = {name for rest in said("COPY") if "--from" not in rest for name in rest.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = [*wheel, project["project"]["readme"], *project["project"]["license-files"]]
    assert all({name, name.partition("/")[0]} & copied for name in needed)
    (extras,) = re.findall(r"\[([\w,]+)\]\"", TEXT)
    assert set(extras.split(",")) <= project["project"]["optional-dependencies"].keys()


def environ(data: Path, **given: str) -> dict[str, str]:
    """The image's variables, with a folder in the volume's place."""
    set_in_image = dict(pair.split("=") for pair in said("ENV")[0].split())
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("MEMAGENT_", "OPENAI_"))}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | {n: v.replace("/data", str(data)) for n, v in set_in_image.items()} | given


@contextmanager
def started(data: Path, *options: str, **given: str) -> Iterator[str]:
    """The image's command; yields its URL, and ends it as `docker stop` does."""
    line = [*ENTRYPOINT, "extractive", "--port", "0", *options]
    process = subprocess.Popen(
        line, env=environ(data, **given), cwd=data, text=True, stdout=subprocess.PIPE
    )
    assert process.stdout
    try:
        first = process.stdout.readline()
        assert "serves at http://0.0.0.0:" in first
        yield f"http://127.0.0.1:{port_of(first.split()[-1])}/v1"
        process.terminate()
        process.wait(20)
    finally:
        process.kill()
        process.communicate()


def is_healthy(url: str) -> bool:
    """What the image's health check says of a port."""
    check = json.loads(said("HEALTHCHECK")[0].partition("CMD")[2])
    assert f":{said('EXPOSE')[0]}/" in check[-1]
    there = [*check[:-1], check[-1].replace(said("EXPOSE")[0], str(port_of(url)))]
    env = environ(Path("/nowhere"), http_proxy="http://127.0.0.1:9")
    return subprocess.run(there, env=env, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_it_refuses_to_start_without_keys(tmp_path: Path) -> None:
    line = [*ENTRYPOINT, "extractive"]
    env = environ(tmp_path)
    done = subprocess.run(line, env=env, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 2
    assert "needs keys" in done.stderr


@pytest.mark.parametrize("place", ["environment", "file"])
def test_it_serves_who_has_a_key(tmp_path: Path, place: str) -> None:
    (secret := tmp_path / "keys").write_text(f"{KEY}\n")
    options = ("--keys", str(secret)) if place == "file" else ()
    given = {} if place == "file" else {"MEMAGENT_SERVE_KEYS": KEY}
    with started(tmp_path, *options, **given) as url:
        assert is_healthy(url)
        for key, status in ((KEY, 200), ("another", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            there = f"{url}/chat/completions"
            reply = httpx.post(there, json=BODY, headers=headers, trust_env=False)
            assert reply.status_code == status
        assert httpx.get(f"{root(url)}/v1/models", trust_env=False).status_code == 401
        assert (tmp_path / "memagent" / "runs.sqlite").exists()
    assert not is_healthy(url)
