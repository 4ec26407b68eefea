"""A model without weights, for demos and tests: it keeps the sentences that match the question."""

from memagent.errors import RequestRefused
from memagent.messages import ChatRequest, Completion, Usage
from memagent.models.base import SimpleModel
from memagent.tokens.byte_bound import ByteBound
from memagent_engines.extractive_score import Question, clip, sentences

WINDOW = 8192
"""Window of the published system, although tokens are bytes here."""
NOTHING_FOUND = "No sentence of the document matches the question."


class ExtractiveModel(SimpleModel):
    """Answers from a document with its own sentences. No weights, no server, no network, and no understanding.

    It scores sentences by the words they share with the question (ignoring case, accents and English endings) and by
    whether they contain the kind of thing asked for (a date, a name, a place, a number), keeps the best within
    the memory's budget, and answers with the best one. It cannot infer, resolve pronouns or combine facts.

    It reads `request.parts` and never the messages: `question`, `memory`, `chunk`, and the prompt set's
    `keep`, `empty_memory` and `answer_form`. The same request always gives the same reply.

    Args:
        window: maximum bytes of prompt plus output; it only affects the size of callers' chunks.
    """

    name = "extractive"

    def __init__(self, *, window: int = WINDOW) -> None:
        super().__init__(ByteBound(), window)

    async def complete(self, request: ChatRequest) -> Completion:
        """Rewrites the memory (`update`) or answers (`answer`) in `max_tokens` bytes; else raises `RequestRefused`."""
        prompt = self.count_prompt(request)
        if request.kind not in ("update", "answer"):
            raise RequestRefused(
                "extractive only reads documents: for anything else, such as messages and tools, name a language "
                "model ('vllm:NAME')"
            )
        text = _update(request) if request.kind == "update" else _answer(request)
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=self._counter.count(text))
        return Completion(text=text, usage=usage)

    def __repr__(self) -> str:
        return "ExtractiveModel()"


def _memory(request: ChatRequest) -> list[str]:
    """Returns the memory's lines; this model writes one sentence on each."""
    memory = request.parts.get("memory", "")
    if memory.strip() == request.parts.get("empty_memory", "").strip():
        return []
    return [line.strip() for line in memory.splitlines() if line.strip()]


def _update(request: ChatRequest) -> str:
    parts = request.parts
    question = Question.parse(parts.get("question", ""))
    old = _memory(request)
    # dict: a sentence that overlapping chunks show twice is kept once, at its first position
    candidates = list(dict.fromkeys([*old, *sentences(parts.get("chunk", ""))]))
    selection = _best(question, candidates, request.max_tokens)
    if selection == old or not selection:
        unchanged = "\n".join(old) or parts.get("empty_memory", "")
        return parts.get("keep") or unchanged
    return "\n".join(selection)


def _best(question: Question, candidates: list[str], budget: int) -> list[str]:
    """Returns the best sentences that fit `budget` UTF-8 bytes, one per line, in document order."""
    scores = list(map(question.score, candidates))
    matching = [place for place, score in enumerate(scores) if score > 0]
    selection: dict[int, str] = {}
    for place in sorted(matching, key=lambda place: -scores[place]):  # of equal scores, the first
        # Only the best sentence is worth keeping in part.
        text = candidates[place] if selection else clip(candidates[place], budget)
        size = ByteBound().count(text) + bool(selection)  # with its line end
        if text and size <= budget:
            selection[place] = text
            budget -= size
    return [selection[place] for place in sorted(selection)]


def _answer(request: ChatRequest) -> str:
    question = Question.parse(request.parts.get("question", ""))
    memory = _memory(request)
    # max returns the first of equals
    best = max(memory, key=question.score, default="")
    answer = " ".join(best.split()) if question.score(best) > 0 else NOTHING_FOUND
    before, after = _FORMS.get(request.parts.get("answer_form", "plain"), ("", ""))
    return before + clip(answer, request.max_tokens - len(before) - len(after)) + after


_FORMS = {"boxed": ("\\boxed{", "}"), "sentence": ("Therefore, the answer is (", ").")}
