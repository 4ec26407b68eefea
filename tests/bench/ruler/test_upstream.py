"""RULER's own script is run as its documentation says, and its failures are found out.

The checkout here is a stand-in that takes the same arguments; the real one needs data that nobody may pass on.
"""

import json
from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_bench.ruler.upstream import SCRIPT, generate

STAND_IN = """
import argparse, json, shutil, sys, time
from pathlib import Path
names = "save_dir benchmark task tokenizer_path tokenizer_type max_seq_length model_template_type num_samples"
parser = argparse.ArgumentParser()
for name in names.split():
    parser.add_argument("--" + name, required=True)
given = parser.parse_args()
end = time.process_time() + 0.2
while time.process_time() < end:
    pass
if given.task == "broken":
    print("Error output: no module named nltk")
    sys.exit(0)
if given.task == "crashed":
    sys.exit("a traceback")
out = Path(given.save_dir) / given.task
out.mkdir()
row = json.dumps({**vars(given), "python": shutil.which("python"), "cwd": str(Path.cwd())})
(out / "validation.jsonl").write_text("\\n".join([row] * int(given.num_samples)))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    script = tmp_path / "RULER" / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text(STAND_IN)
    return tmp_path / "RULER"


def test_the_script_gets_its_own_arguments_and_is_timed(checkout: Path, tmp_path: Path) -> None:
    seconds = generate(checkout, "niah_single_1", 4096, 3, tmp_path, tokenizer="hf:a/b:c")
    assert 0.2 <= seconds < 10
    rows = (tmp_path / "niah_single_1" / "validation.jsonl").read_text().splitlines()
    assert len(rows) == 3
    said = json.loads(rows[0])
    assert (said["tokenizer_type"], said["tokenizer_path"]) == ("hf", "a/b:c")
    assert (said["max_seq_length"], said["num_samples"]) == ("4096", "3")
    assert Path(said["cwd"]) == (checkout / SCRIPT).parent.resolve()


@pytest.mark.parametrize(("task", "said"), [("broken", "nltk"), ("crashed", "a traceback")])
def test_what_it_did_not_write_is_an_error(
    checkout: Path, tmp_path: Path, task: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=f"0 of 2 samples of '{task}'") as caught:
        generate(checkout, task, 4096, 2, tmp_path)
    assert said in str(caught.value)
    assert "TIKTOKEN_CACHE_DIR" in str(caught.value)
    assert "NLTK_DATA" in str(caught.value)


def test_what_is_no_checkout_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a checkout of NVIDIA/RULER"):
        generate(tmp_path, "niah_single_1", 4096, 1, tmp_path)


def test_a_python_that_is_none_is_named(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-python"):
        generate(checkout, "vt", 4096, 1, tmp_path, python=str(tmp_path / "no-python"))
