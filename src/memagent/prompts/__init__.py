"""State -> messages, replies -> state: wording is data, and content can't close its field."""

from memagent.prompts.neutral import Neutraliser
from memagent.prompts.promptset import Gate, PromptSet
from memagent.prompts.reply import UnusableReply, read_answer, read_update

__all__ = ["Gate", "Neutraliser", "PromptSet", "UnusableReply", "read_answer", "read_update"]
