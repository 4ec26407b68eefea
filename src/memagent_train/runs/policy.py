"""The policy: weights and tokenizer, loaded for training or inspection."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from memagent.errors import ConfigError
from memagent_engines.lora import SETTINGS as ADAPTER
from memagent_engines.lora import WEIGHTS
from memagent_engines.transformers.adapter import check_base
from memagent_engines.transformers.loading import check_whole
from memagent_train.config.sections import LoraSettings, ModelSettings
from memagent_train.runs.faults import first_line

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

Tokenizer: TypeAlias = Any
"""A `PreTrainedTokenizerBase`; its methods are resolved at run time, so its type wouldn't help much."""
# Progress bars of loading and saving, and warnings about tied weights, would clutter the progress lines.
logging.disable_progress_bar()
logging.set_verbosity_error()
# peft uses a deprecated name on every model.
warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(settings: ModelSettings) -> PreTrainedModel:
    """Loads the weights, on the CPU: the trainer moves them.

    Raises:
        ConfigError: there is no such model, or it can't be loaded with these settings.
    """
    options: dict[str, Any] = {
        "dtype": DTYPES[settings.dtype],
        "attn_implementation": settings.attention,
        "trust_remote_code": settings.trust_remote_code,
    }
    if settings.revision is not None:
        options["revision"] = settings.revision
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            settings.path, output_loading_info=True, **options
        )
    except MemoryError:
        raise
    except Exception as error:  # anything that a hub, a file or a model's code may raise
        raise ConfigError(
            f"model.path = {settings.path!r} cannot be loaded ({first_line(error)}): give a folder as transformers "
            f"writes it, or a name on the hub; check dtype and attention too"
        ) from error
    model, info = loaded
    check_whole(settings.path, info)
    return model


def load_tokenizer(settings: ModelSettings, *, offline: bool = False) -> Tokenizer:
    """Loads the tokenizer, with a chat template and a padding token.

    Args:
        settings: the policy's settings.
        offline: whether to use only files on this machine.

    Raises:
        ConfigError: it can't be loaded, or has no end token or chat template.
    """
    source = settings.tokenizer or settings.path
    options: dict[str, Any] = {
        "trust_remote_code": settings.trust_remote_code,
        "local_files_only": offline,
    }
    if settings.revision is not None and settings.tokenizer is None:
        options["revision"] = settings.revision
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:
        hint = "give one with model.tokenizer"
        if not Path(source).is_dir():
            hint = "there is no such folder; give one that exists, or a name on the hub"
        raise ConfigError(
            f"no tokenizer can be loaded from {source!r} ({first_line(error)}): {hint}"
        ) from error
    if settings.chat_template is not None:
        tokenizer.chat_template = _template(settings.chat_template)
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer of {source!r} has no chat template: give one with model.chat_template (a Jinja file)"
        )
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer of {source!r} has no end token (eos_token): set one")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding is masked, so any token works
    return tokenizer


def check_fit(model: PreTrainedModel, tokenizer: Tokenizer) -> None:
    """Raises a `ConfigError` if the tokenizer has ids without an embedding in the model."""
    rows = embeddings(model)
    if len(tokenizer) > rows:
        raise ConfigError(
            f"the tokenizer has {len(tokenizer)} tokens, but the model only {rows}: give its original tokenizer "
            f"(model.tokenizer)"
        )


def embeddings(model: PreTrainedModel) -> int:
    """Returns the number of ids with an embedding in the model."""
    table: Any = model.get_input_embeddings()
    return table.weight.shape[0]


def adapter_settings(settings: LoraSettings) -> LoraConfig:
    """Converts the settings of an adapter to peft's."""
    from peft import LoraConfig

    targets = settings.targets
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # pyright: ignore[reportArgumentType]: peft divides it by the rank, whatever it is
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )


def with_adapter(
    model: PreTrainedModel, settings: LoraSettings | None
) -> tuple[PreTrainedModel | PeftModel, LoraConfig | None]:
    """Returns the model for a trainer, and the adapter that the trainer must add; None if there is none to add.

    Raises:
        ConfigError: the adapter to continue can't be loaded, or has another rank or alpha; or a target of a new
            adapter names no layer.
    """
    if settings is None:
        return model, None
    if settings.start is None:
        _check_targets(model, settings.targets)
        return model, adapter_settings(settings)
    from peft import PeftConfig, PeftModel

    start = str(settings.start)
    base = model.name_or_path
    if base and Path(base).is_dir() and (settings.start / WEIGHTS).is_file():
        check_base(Path(base), settings.start)
    try:
        config: Any = PeftConfig.from_pretrained(start)
        shape = (config.r, config.lora_alpha)
        adapted = PeftModel.from_pretrained(model, start, is_trainable=True)
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # anything from a file, peft or torch: wrong shapes are a RuntimeError
        raise ConfigError(
            f"lora.start = {start!r} is not an adapter of this model ({first_line(error)}): give the folder of one, "
            f"such as a checkpoint of a run with [lora]"
        ) from error
    if shape != (settings.rank, settings.alpha):
        raise ConfigError(
            f"lora.rank = {settings.rank!r} and lora.alpha = {settings.alpha!r}, but the adapter in {start!r} has "
            f"{shape[0]!r} and {shape[1]!r}: set these"
        )
    # An export names its base without a folder; peft would look for that name on the hub at each checkpoint.
    adapted.peft_config["default"].base_model_name_or_path = model.name_or_path
    return adapted, None


def _check_targets(model: PreTrainedModel, targets: tuple[str, ...] | str) -> None:
    layers = [name for name, module in model.named_modules() if not any(module.children())]
    for target in () if isinstance(targets, str) else targets:
        if not any(f".{name}".endswith(f".{target}") for name in layers):
            linear = (
                path for path, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)
            )
            raise ConfigError(
                f"lora.targets has {target!r}, but the model has no such layer: give some of "
                f"{', '.join(sorted({name.rpartition('.')[2] for name in linear}))}, or 'all-linear'"
            )


def with_checkpoint(
    settings: ModelSettings, checkpoint: Path, *, merge: torch.dtype | None = None
) -> PreTrainedModel:
    """Loads the policy of a checkpoint; an adapter is merged into its base model.

    Args:
        settings: the run's settings, which name the base model of an adapter.
        checkpoint: a folder.
        merge: dtype in which an adapter is merged, and of the merged weights; None: the base model's.

    Raises:
        ConfigError: the checkpoint can't be loaded.
    """
    if not (checkpoint / ADAPTER).exists():
        return load_model(settings.model_copy(update={"path": str(checkpoint), "revision": None}))
    from peft import PeftModel

    base: Any = load_model(settings)
    if merge is not None:
        base = base.to(merge)
    try:
        return PeftModel.from_pretrained(base, str(checkpoint)).merge_and_unload()  # pyright: ignore[reportCallIssue]
    except Exception as error:
        raise ConfigError(
            f"the adapter in {str(checkpoint)!r} does not fit {settings.path!r} ({first_line(error)})"
        ) from error


def _template(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"model.chat_template = {str(file)!r} cannot be read: {error}") from error
