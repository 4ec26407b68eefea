from tests.cli.conftest import Invoke, Process, only_json


def test_the_demo_reads_a_whole_novel_and_is_pleasant_to_read(memagent: Process) -> None:
    done = memagent("demo")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) < 60
    assert "no LLM" in lines[1]
    assert any(line.startswith("answer: ") and "1813" in line for line in lines)
    assert "memagent ask FILE 'QUESTION' --model vllm:NAME" in lines[-1]
    assert "chunks" in lines[-2]
    assert not any(line.endswith(("kept", "unchanged")) for line in lines)
    assert "\x1b" not in done.stdout


def test_the_demo_leaves_nothing_in_the_store(invoke: Invoke) -> None:
    said = only_json(invoke("demo", "Who was Pierre?", "--display", "json").stdout)
    assert said["question"] == "Who was Pierre?"
    assert said["chunks"] > 500
    assert invoke("runs", "--display", "json").stdout == "[]\n"
