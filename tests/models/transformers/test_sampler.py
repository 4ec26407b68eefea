import math

import pytest
import torch
from tests.models.transformers.policies import WINDOW, policy, tokenizer
from transformers import PreTrainedConfig

from memagent.errors import ConfigError, ModelError
from memagent.messages import FinishReason
from memagent_engines.transformers.drawing import generation_settings
from memagent_engines.transformers.loading import is_out_of_memory
from memagent_engines.transformers.sampler import (
    Sampled,
    end_ids,
    pad_id,
    read_drawn,
    window_of,
)


def test_end_ids_are_those_of_model_and_tokenizer() -> None:
    model, names = policy(), tokenizer()
    assert end_ids(model, names) == (2,)
    assert model.generation_config is not None
    model.generation_config.eos_token_id = [7, 9]
    assert end_ids(model, names) == (2, 7, 9)
    names.eos_token = None
    assert end_ids(model, names) == (7, 9)
    model.generation_config.eos_token_id = None
    with pytest.raises(ConfigError, match="eos_token"):
        end_ids(model, names)


def test_rows_are_filled_up_with_the_pad_token_or_an_end_token() -> None:
    names = tokenizer()
    assert pad_id(names, [2]) == 0
    names.pad_token = None
    assert pad_id(names, [2]) == 2


def test_a_window_that_nobody_names_is_an_error() -> None:
    model = policy()
    assert window_of(model) == WINDOW
    model.config = PreTrainedConfig()
    with pytest.raises(ConfigError, match="give the window"):
        window_of(model)


def test_settings_of_generation_come_back_after_an_error() -> None:
    model = policy()
    config = model.generation_config
    settings = generation_settings(model, ends=[2], pad=0)
    with pytest.raises(ZeroDivisionError), settings:
        raise ZeroDivisionError
    assert model.training
    assert model.generation_config is config


def test_what_was_drawn_is_checked() -> None:
    assert read_drawn([5, 2], [-1.0, -0.5], 2, [2]) == Sampled(
        (5, 2), (-1.0, -0.5), FinishReason.STOP
    )
    assert read_drawn([5, 6], [-1.0, -0.5], 2, [2]) == Sampled(
        (5, 6), (-1.0, -0.5), FinishReason.LENGTH
    )
    for ids, logprobs, words in (
        ([5, 6], [-1.0], "1 log-prob"),
        ([], [], "for 0 ids"),
        ([5], [math.nan], "weights"),
        ([5], [-math.inf], "weights"),
    ):
        error = read_drawn(ids, logprobs, 2, [2])
        assert isinstance(error, ModelError)
        assert words in str(error)


def test_what_says_that_there_is_no_memory_left() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    assert not is_out_of_memory(ValueError("out of memory"))
