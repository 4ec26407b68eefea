"""Tools: definitions, running them, and where they come from."""

from memagent.tools.base import Environment, Tool, ToolContext, ToolOutput
from memagent.tools.calling import Toolset
from memagent.tools.function import tool

__all__ = ["Environment", "Tool", "ToolContext", "ToolOutput", "Toolset", "tool"]
