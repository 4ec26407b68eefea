from pathlib import Path

import pytest

from memagent import ScriptedModel
from memagent.prompts import PromptSet
from memagent.tokens import load_counter
from memagent_nano import gated
from memagent_nano.lessons import PROMPTS, teacher
from memagent_nano.sizes import PICO

DOCUMENTS = 6


def test_each_update_is_there_twice_and_keeps_what_stays_as_it_was(
    tmp_path: Path, tokenizers: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expert, counter = teacher(PICO, "relevant", 0), load_counter(tokenizers["pico"])
    models = [ScriptedModel(expert, window=PICO.window, counter=counter)]
    monkeypatch.setattr(gated, "TransformersModel", lambda _: models[0])
    made = list(gated.lessons(PICO, tmp_path, DOCUMENTS))

    requests = models[0].requests
    updates = [one for one in requests if one.kind == "update"]
    plain = [lesson for lesson in made if not lesson[0].endswith(" or [keep]:")]
    offered = [lesson for lesson in made if lesson[0].endswith(" or [keep]:")]
    assert len(plain) == len(requests)
    assert len(offered) == len(updates)
    prompts = PromptSet.load(PROMPTS)
    asked = {one.messages[0].content: one for one in updates}
    kept = 0
    for said, reply in plain:
        if said not in asked:
            continue
        parts = asked[said].parts
        memory = parts["memory"] or prompts.empty_memory
        (message,) = prompts.render(
            "update",
            gate="update",
            question=parts["question"],
            memory=memory,
            chunk=parts["chunk"],
        )
        again = dict(offered)[message.content]
        assert again == ("[keep]" if reply == memory else reply)
        kept += again == "[keep]"
    assert 0 < kept < len(updates)
