"""Environments of CodeGym's form, written for these tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TALLY = '''
import gymnasium
import ast
import json


class TallyEnv(gymnasium.Env):
    def __init__(self, env_str=None):
        super().__init__()
        self.func_mapping = {"Observe": 0, "Read": 1, "Add": 2, "Misbehave": 3, "Done": 4}
        self.numbers = ast.literal_eval(env_str.split("@")[1])["numbers"]
        self.total, self._reward, self._done = 0, 0, False

    @property
    def finished(self):
        return self._done

    @property
    def reward(self):
        return float(self._reward)

    @staticmethod
    def from_env_str(env_str):
        return TallyEnv(env_str) if env_str.startswith("TallyEnv@") else None

    def step(self, action):
        try:
            call = json.loads(action)
            return True, getattr(self, call["name"])(**call["parameters"])
        except Exception as error:
            return True, f"Error: {error}"

    def Observe(self):
        """How many numbers there are."""
        return str(len(self.numbers))

    def Read(self, place: int):
        """
        One number.

        Args:
            place (int): From 0.

        Returns:
            str: The number.

        Example Output:
            "7"
        """
        print("reading", place)
        return str(self.numbers[place])

    def Add(self, number: int, note: str = ""):
        """Adds a number to the total."""
        self.total += number
        return f"{self.total}{note}"

    def Misbehave(self, code: str):
        """Runs code."""
        return str(eval(code))

    def Done(self, answer):
        """
        Hands in the sum.

        Args:
            answer (int): The sum.
        """
        right = sum(self.numbers)
        self._reward, self._done = int(answer + 0 == right), True
        return f"Your answer: {answer}, Reference answer: {right}"

    def solve(self):
        count = int(self.step(json.dumps({"name": "Observe", "parameters": {}}))[1])
        total = 0
        for place in range(count):
            number = int(self.step(json.dumps({"name": "Read", "parameters": {"place": place}}))[1])
            total = int(self.step(json.dumps({"name": "Add", "parameters": {"number": number}}))[1])
        return self.step(json.dumps({"name": "Done", "parameters": {"answer": total}}))[1]
'''

ASKED = "Add the numbers up.\nWrite calls as <|FunctionCallBegin|>[...]<|FunctionCallEnd|>.\nHand in the sum."


def task(numbers: Sequence[int] = (3, 4), code: str | None = TALLY, **more: Any) -> dict[str, Any]:
    """A row of tasks."""
    return {
        "ability": f"codegym_v1@Tests_1_I__TallyEnv@{json.dumps({'numbers': [*numbers]})}",
        "prompt": [
            {"role": "system", "content": "def Observe(): ...", "name": "functions"},
            {"role": "user", "content": ASKED, "name": ""},
        ],
        "reward_model": {"ground_truth": None, "style": "agent_env"},
        "extra_info": {"gym_env": code, "solve_fc_round": 2 * len(numbers) + 2},
        **more,
    }


def write(path: Path, *rows: object) -> Path:
    """Rows as JSON lines; a text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
