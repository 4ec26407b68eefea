"""Shapes and weight counts of models, read from a config.json or a table, never from the hub."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder such as Qwen2, Qwen3 or Llama."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    """Whether input and output share an embedding."""
    biases: bool = False
    """Whether queries, keys and values have biases (Qwen2)."""
    head_norms: bool = False
    """Whether queries and keys are normalised per head (Qwen3)."""

    @property
    def parameters(self) -> int:
        """Number of weights."""
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden
        return ends + self.layers * self._layer

    @property
    def _layer(self) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * queries + 2 * keys)
        attention += (queries + 2 * keys) * self.biases + 2 * self.head_dim * self.head_norms
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    def adapter(self, rank: int) -> int:
        """Counts the weights of a LoRA adapter on all linear layers but the output embedding: rank * (in + out) each.

        Source: LoRA (arXiv 2106.09685), W + B A with B of out x rank and A of rank x in.
        """
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * (self.hidden + queries) + 2 * (self.hidden + keys)
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))


SHAPES = {
    "qwen2.5-7b": Shape(28, 3584, 18944, 28, 4, 128, 152064, biases=True),
    "qwen2.5-14b": Shape(48, 5120, 13824, 40, 8, 128, 152064, biases=True),
    "qwen2.5-32b": Shape(64, 5120, 27648, 40, 8, 128, 152064, biases=True),
}
"""Shapes by lower-case name, from the published config.json files."""


def shape_of(model: str) -> Shape | None:
    """Returns the shape of a model folder, or of a known hub name; None if unknown.

    Raises:
        ConfigError: the folder's config.json can't be read.
    """
    file = Path(model) / "config.json"
    if file.is_file():
        try:
            return from_config(json.loads(file.read_bytes()))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{str(file)!r} cannot be read: {error}") from error
    name = model.rpartition("/")[2].lower()
    return next((shape for prefix, shape in SHAPES.items() if name.startswith(prefix)), None)


def from_config(config: dict[str, Any]) -> Shape | None:
    """Reads the shape from a config.json; None for another kind of model (such as a mixture of experts)."""
    kind = str(config.get("model_type", ""))
    if kind not in ("qwen2", "qwen3", "llama", "mistral"):
        return None
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            biases=kind == "qwen2",
            head_norms=kind == "qwen3",
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
