"""Where a record comes from: found out where it can be, None where it cannot."""

from pathlib import Path

import pytest
from tests.bench.fakes import benchmark, grid, model
from tests.models.chat_server import Script, send
from tests.models.stand_in_engine import StandInModel

from memagent.models.base import Wrapper
from memagent.models.spec import open_model
from memagent_bench.provenance import provenance, server_of, weights_of


async def test_a_model_in_this_process_has_no_server(tmp_path: Path) -> None:
    bench = benchmark(tmp_path, model=model(), grid=grid(), seed=7)
    found = await provenance(bench.model, await bench.plan())
    assert (found.model, found.server, found.seed) == ("scripted", None, 7)
    assert found.prompts.startswith("plain:")
    assert found.chunker == "exact:400:utf8-bytes"
    assert found.window == 1408
    assert "cores" in found.machine
    assert {"memagent", "openai", "tokenizers"} <= set(found.packages)
    await bench.model.aclose()


async def test_a_server_is_named_by_kind_version_and_address(server: Script) -> None:
    server.be_vllm()
    server.others["/version"] = send(200, {"version": "0.11.0"})
    url = server.url.replace("http://", "http://user:secret-word@")
    served = open_model("openai:tiny", base_url=url)
    assert await server_of(served) == f"vllm 0.11.0 at {server.url}"
    await served.aclose()


async def test_a_plain_server_has_no_version(server: Script) -> None:
    served = open_model("openai:x", base_url=server.url, tokenizer="bytes")
    assert await server_of(served) == f"plain at {server.url}"
    await served.aclose()


def test_weights_have_a_digest_if_they_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [weights_of(StandInModel("name/on-a-hub")), weights_of(model())] == ["", ""]
    monkeypatch.setattr(StandInModel, "weights_digest", "0123456789abcdef")
    assert weights_of(Wrapper(StandInModel("here"))) == "0123456789abcdef"
