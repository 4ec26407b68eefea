"""Settings that name files and folders whose content a run's record binds: they may be moved, but not changed."""

from collections.abc import Collection, Mapping
from typing import Any, cast

ROWS = ("jsonl", "hub")
DIGESTED: dict[str, tuple[str, ...]] = {
    "model.path": ("weights", "tokenizer"),
    "model.tokenizer": ("tokenizer",),
    "model.chat_template": ("chat_template",),
    "lora.start": ("adapter",),
    "agent.prompts": ("prompts",),
    "agent.tools.prompts": ("prompts",),
    "reward.judge.prompt": ("judge_prompt",),
    "data.length_tokenizer": ("length_tokenizer",),
    "data.source[jsonl].files": ("rows",),
    "data.source[hub].path": ("rows",),
    "traces.source[messages].files": ("traces",),
    "traces.source[record].files": ("traces",),
    "traces.source[rollouts].path": ("traces",),
    "traces.source[runs].store": ("traces",),
}
"""Names of the facts that bind what a setting names; keys are as in `memagent_train.config.keys`. Others, such as
paragraphs and essays, aren't bound as a whole."""


def list_digested(settings: Mapping[str, Any], facts: Mapping[str, Any]) -> set[str]:
    """Returns the keys of `DIGESTED` whose content is bound.

    Args:
        settings: those that the run was started with.
        facts: what `RunFolder.bind_data` recorded for it; a fact is empty if there was nothing to digest, such as for
            weights on a hub.
    """
    found = dict(facts)
    sources = [source for source in facts.get("sources", ()) if isinstance(source, dict)]
    digests = [source.get("digest") for source in sources if source.get("kind") in ROWS]
    found["rows"] = bool(digests) and all(digests)
    if "length_tokenizer" not in settings.get("data", {}):
        # Earlier versions recorded the policy's tokenizer only as what measures lengths.
        found.setdefault("tokenizer", facts.get("length_tokenizer"))
    return {key for key, names in DIGESTED.items() if all(found.get(name) for name in names)}


def drop_digested(value: Any, keys: Collection[str], within: str = "") -> Any:
    """Returns the settings without some keys of `DIGESTED`."""
    if isinstance(value, (list, tuple)):
        return [drop_digested(item, keys, within) for item in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    table = cast("Mapping[str, Any]", value)
    section = f"{within}[{table['kind']}]" if "kind" in table else within
    named = ((name, f"{section}.{name}".lstrip("."), item) for name, item in table.items())
    return {name: drop_digested(item, keys, key) for name, key, item in named if key not in keys}
