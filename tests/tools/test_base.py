import math
from collections.abc import Mapping
from typing import Any

import pytest

from memagent.errors import ConfigError
from memagent.messages import ToolSpec
from memagent.tools import Tool


async def run(arguments: Mapping[str, Any]) -> str:
    return ""


@pytest.mark.parametrize("timeout", [0, -1.0, math.nan], ids=str)
def test_a_timeout_is_a_time(timeout: float) -> None:
    with pytest.raises(ConfigError, match=r"'f'.*timeout"):
        Tool(ToolSpec(name="f"), run, timeout=timeout)


def test_a_tool_goes_by_the_name_that_the_model_sees() -> None:
    assert Tool(ToolSpec(name="f"), run, timeout=math.inf).name == "f"
