"""A small package of the form of `bfcl_eval`, written for these tests: one class, one conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.bench.outside.gyms import write

MULTI_TURN = "bfcl_eval/eval_checker/multi_turn_eval"
COUNTER = """
class Counter:
    def __init__(self):
        self.total = 0

    def _load_scenario(self, scenario, long_context=False):
        self.total = scenario["total"]

    def add(self, number, note=""):
        self.total += number
        return {"total": self.total, "note": note}
"""
BACKEND = 'MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Counter": "counter.json"}\n'
ADDED = "I have more tools now."
WORDS = f'DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = "{ADDED}"\n'
UTILS = """
import json
from bfcl_eval.counter import Counter

made = {}


def execute_multi_turn_func_call(
    func_call_list, initial_config, involved_classes, model_name, test_entry_id, long_context=False
):
    if model_name not in made:
        made[model_name] = Counter()
        made[model_name]._load_scenario(initial_config["Counter"], long_context=long_context)
    add = made[model_name].add
    return [json.dumps(eval(text, {"add": add})) for text in func_call_list], {}
"""
CHECKER = """
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call


def multi_turn_checker(played, truth, entry, category, name):
    config = entry["initial_config"]
    for turn, wanted in zip(played, truth, strict=True):
        calls = [call for step in turn for call in step]
        for who, made in (("played", calls), ("truth", wanted)):
            state = execute_multi_turn_func_call(made + ["add(0)"], config, ["Counter"], name + who, entry["id"])
            last = state[0][-1]
            if who == "played":
                first = last
        if first != last:
            return {"valid": False, "error_type": "state"}
    return {"valid": True}
"""


def entry(**more: Any) -> dict[str, Any]:
    """A row of questions."""
    return {
        "id": "multi_turn_base_0",
        "question": [
            [{"role": "user", "content": "Add 2."}],
            [{"role": "user", "content": "Add 3."}],
        ],
        "initial_config": {"Counter": {"total": 1}},
        "path": ["Counter.add"],
        "involved_classes": ["Counter"],
        "excluded_function": ["subtract"],
        **more,
    }


def make_missing(folder: Path) -> Path:
    """Writes a package with one conversation whose tool comes with the second message."""
    missing = entry(
        id="multi_turn_miss_func_0",
        question=[[{"role": "user", "content": "Add 2."}], []],
        excluded_function=[],
        missed_function={"1": ["add"]},
    )
    data = make(folder) / "bfcl_eval/data"
    (data / "BFCL_v4_multi_turn_base.json").unlink()
    write(data / "BFCL_v4_multi_turn_miss_func.json", missing)
    truth = {"id": "multi_turn_miss_func_0", "ground_truth": [[], ["add(2)"]]}
    write(data / "possible_answer/BFCL_v4_multi_turn_miss_func.json", truth)
    return folder


def doc(name: str = "add", **more: Any) -> dict[str, Any]:
    """A row of tools."""
    number = {"type": "float", "description": "What to add."}
    properties = {
        "number": number,
        "note": {"type": "any"},
        "parts": {"type": "tuple", "items": number},
    }
    parameters = {"type": "dict", "properties": properties, "required": ["number"]}
    return {"name": name, "description": "Adds.", "parameters": parameters, "response": {}, **more}


def make(folder: Path, *entries: Any) -> Path:
    """Writes the package."""
    texts = {
        "bfcl_eval/counter.py": COUNTER,
        "bfcl_eval/constants/executable_backend_config.py": BACKEND,
        "bfcl_eval/constants/default_prompts.py": WORDS,
        f"{MULTI_TURN}/multi_turn_utils.py": UTILS,
        f"{MULTI_TURN}/multi_turn_checker.py": CHECKER,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    data = folder / "bfcl_eval/data"
    write(data / "BFCL_v4_multi_turn_base.json", *(entries or (entry(),)))
    truth = {"id": "multi_turn_base_0", "ground_truth": [["add(number=2)"], ["add(3)"]]}
    write(data / "possible_answer/BFCL_v4_multi_turn_base.json", truth)
    write(data / "multi_turn_func_doc/counter.json", doc(), doc("subtract"))
    folder.chmod(0o755)  # in the sandbox, root is somebody else
    return folder
