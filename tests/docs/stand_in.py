"""What the pages take for granted: a working folder, and a local server that reads books.

The server is `extractive` behind HTTP, under the name of a real model. `extractive` is handed the fields of a prompt;
a server sees only the text, so this one finds the fields in it.
"""

import asyncio
import json
import re
import shutil
from pathlib import Path

from tests.engines.tiny_model import chat_settings
from tests.models.chat_server import CHATML_TOOLS, TOKENIZER, Handler, Script, chat, counts, send

from memagent import ChatRequest, Message, PromptSet
from memagent_engines.extractive import ExtractiveModel

ROOT = Path(__file__).resolve().parents[2]
BOOK = "src/memagent/samples/war_and_peace.txt.gz"
MODEL = "Qwen/Qwen3-4B"
WINDOW = 8192
PROMPTS = PromptSet.load()
READER = ExtractiveModel(window=1_000_000)  # it counts bytes, and prompts are cut by tokens here


def lay_out(place: Path) -> None:
    """Makes the working folder: the sample of a book where a checkout has it, and the model's tokenizer."""
    book = place / BOOK
    book.parent.mkdir(parents=True)
    shutil.copy(ROOT / BOOK, book)
    shutil.copytree(TOKENIZER, place / MODEL)
    # A template that shows tools, as the real one does.
    settings = json.dumps(chat_settings())
    (place / MODEL / "tokenizer_config.json").write_text(settings, encoding="utf-8")


def serve_reader(script: Script) -> None:
    """Has the server read, count tokens, and give itself away as vLLM."""
    script.serve_models({"id": MODEL, "owned_by": "vllm", "max_model_len": WINDOW})
    script.others = counts(template=CHATML_TOOLS)
    script.default = read


def read(handler: Handler) -> None:
    """Replies without usage: memagent counts what is missing."""
    send(200, chat(reply(handler)) | {"usage": None})(handler)


def reply(handler: Handler) -> str:
    """The reply to a prompt in memagent's own wording; to any other one a word."""
    prompt: str = handler.body["messages"][-1]["content"]
    names = ("question", "memory", "chunk")
    parts = {name: found for name in names if (found := field(name, prompt)) is not None}
    text = "Hello."
    if parts:
        request = ChatRequest(
            messages=(Message(role="user", content=prompt),),
            max_tokens=handler.body["max_tokens"],
            kind="update" if "chunk" in parts else "answer",
            parts={"empty_memory": PROMPTS.empty_memory, "keep": PROMPTS.keep, **parts},
        )
        text = asyncio.run(READER.complete(request)).text
    return text


def field(name: str, prompt: str) -> str | None:
    """The text of a field of the prompt; None where it has none of that name."""
    tag = getattr(PROMPTS.tags, name)
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", prompt, re.DOTALL)
    return found and found[1]
