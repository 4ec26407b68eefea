"""Parameters that a server refuses for a model: renamed or left out from then on."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from memagent.models.openai_errors import CLIP, Endpoint, overflows, refused, server_message

if TYPE_CHECKING:
    import openai

logger = logging.getLogger("memagent")

OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names of the most tokens that may be generated: new models take one, old servers the other."""
_CHANGED: dict[str, str | None] = {
    **OTHER_LIMIT,
    "seed": None,
    "top_p": None,  # before the temperature: some models take either, and name both
    "temperature": None,
}
_REFUSAL = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (permitted|allowed|accepted)"
    r"|extra (inputs|fields)|cannot both|only the default|deprecated",
    re.IGNORECASE,
)
"""How servers say that a parameter, or any value but its default, is not for this model; a value that is merely out
of range is the user's."""


class Parameters:
    """What one server was found to refuse."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._changed: dict[str, str | None] = {}

    def adapt(self, fields: Mapping[str, object]) -> dict[str, object]:
        """A request's fields as this server takes them."""
        names = {name: self._changed.get(name, name) for name in fields}
        return {new: fields[name] for name, new in names.items() if new is not None}

    def learn(self, error: openai.APIError, sent: Mapping[str, object]) -> bool:
        """Whether the request, sent with these (adapted) fields, is worth sending again without what was refused."""
        words = server_message(error.body)[:CLIP]
        said = _REFUSAL.search(f"{words} {error.code}")
        if not refused(error) or said is None or overflows(error):
            return False
        named = [n for n in _CHANGED if n in sent and re.search(rf"\b{n}\b", words)]
        name = error.param if error.param in _CHANGED else next(iter(named), None)
        if name is None or name not in sent:
            return False
        new = _CHANGED[name]
        if new in sent or new in self._changed:  # it takes neither
            return False
        if name not in self._changed:
            self._changed[name] = new
            logger.warning(
                "%s: refuses %s=%r (%s): it is %s from now on",
                *(self._endpoint, name, sent[name], self._endpoint.quote(words)),
                "left out" if new is None else f"sent as {new}",
            )
        return True
