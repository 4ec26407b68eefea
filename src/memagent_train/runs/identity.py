"""Identifies what a run learns from besides settings and data: custom code, the tokenizer, its first weights."""

import hashlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from memagent.named import load_function
from memagent_engines.transformers.adapter import weights_sha256
from memagent_train.config.train import TrainConfig
from memagent_train.rewards.judge_prompt import JudgePrompt
from memagent_train.runs.policy import Tokenizer

DIGITS = 16
APART = ("tokenizer_config.json", "chat_template.jinja")
"""Files of a tokenizer that aren't digested: the first says where it was loaded from, the second has a fact."""
ADDED = (
    "agent_code",
    "reward_code",
    "data_code",
    "judge_prompt",
    "tokenizer",
    "chat_template",
    "weights",
    "adapter",
)
"""Keys that `identify` returns; earlier versions recorded none of them."""


def identify(config: TrainConfig, tokenizer: Tokenizer) -> dict[str, str]:
    """Returns digests of what the settings only name; empty for what memagent ships and for weights on a hub. Blocks.

    The digest of code covers the file of the named function's module, but not its imports.

    Args:
        config: the settings.
        tokenizer: the policy's tokenizer.

    Raises:
        ConfigError: custom code can't be imported, or the judge's prompt is unusable.
        OSError: a file can't be read.
    """
    start = None if config.lora is None else config.lora.start
    prompt = config.reward.judge.prompt
    if prompt is not None:
        JudgePrompt.load(prompt)  # for its error, which names the file
    sources = config.data.source
    games = {name for source in sources if source.kind == "game" for name in source.games}
    code_names = games | {source.use for source in sources if source.kind == "task"}
    return {
        "agent_code": digest_code(config.agent.use, "agent"),
        "reward_code": digest_code(config.reward.use.strip(), "reward"),
        "data_code": " ".join(
            filter(None, (digest_code(use, "data") for use in sorted(code_names)))
        ),
        "judge_prompt": "" if prompt is None else _digest(prompt.read_bytes()),
        **identify_tokenizer(tokenizer),
        "weights": digest_weights(Path(config.model.path)),
        "adapter": "" if start is None else digest_weights(start),
    }


def identify_tokenizer(tokenizer: Tokenizer) -> dict[str, str]:
    """Returns digests of a tokenizer (its vocabulary files and end token) and of its chat template. Blocks."""
    running = hashlib.sha256(str(tokenizer.eos_token).encode())
    with TemporaryDirectory(prefix="memagent-") as folder:
        tokenizer.save_pretrained(folder)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file() and file.name not in APART:
                running.update(file.read_bytes())
    return {
        "tokenizer": running.hexdigest()[:DIGITS],
        "chat_template": _digest(str(tokenizer.chat_template).encode()),
    }


def digest_code(spec: str, what: str) -> str:
    """Returns the first hex digits of the SHA-256 of the file of the module in `module:function`. Blocks."""
    if ":" not in spec:
        return ""
    load_function(spec, what)
    file = sys.modules[spec.partition(":")[0]].__file__
    return "" if file is None else _digest(Path(file).read_bytes())


def digest_weights(folder: Path) -> str:
    """Returns the first hex digits of the SHA-256 of a folder's tensors; empty for a name on a hub. Blocks."""
    return weights_sha256(folder)[:DIGITS] if folder.is_dir() else ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]
