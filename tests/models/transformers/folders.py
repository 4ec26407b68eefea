"""Folders of policies, as `save_pretrained` and an export leave them."""

from pathlib import Path

from tests.models.transformers.policies import policy, tokenizer
from transformers import PreTrainedModel
from transformers.utils import logging

from memagent.models.policy import FILE
from memagent.prompts import PromptSet

SETTINGS = """
prompts = "prompts.toml"
window = 800
memory_tokens = 12
cuts = "exact"
[sampling]
temperature = 0
"""


def model_folder(folder: Path, model: PreTrainedModel | None = None, *, window: int = 1024) -> Path:
    """Weights and tokenizer."""
    model = model or policy(window=window)
    assert model.generation_config is not None
    model.generation_config.repetition_penalty = 1.0  # as the library saves it without a complaint
    model.generation_config.do_sample = True
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def policy_folder(folder: Path) -> Path:
    """The same with settings of its own, and a wording."""
    model_folder(folder)
    (folder / "prompts.toml").write_text(PromptSet.load("boxed").source, encoding="utf-8")
    (folder / FILE).write_text(SETTINGS, encoding="utf-8")
    return folder
