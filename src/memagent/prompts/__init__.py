"""State -> messages, replies -> state: wording as data, fields kept from being closed by their content."""

from memagent.prompts.neutral import Neutraliser
from memagent.prompts.promptset import Gate, PromptSet
from memagent.prompts.reply import UnusableReply, read_answer, read_update

__all__ = ["Gate", "Neutraliser", "PromptSet", "UnusableReply", "read_answer", "read_update"]
