"""LlamaIndex's response synthesizers as a reader (extra `peers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core import Settings, get_response_synthesizer
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.response_synthesizers import ResponseMode

from memagent_bench.perf.readers import TEMPERATURE, Request, Tally, open_client


class Model(CustomLLM):
    """A local server, adapted as LlamaIndex's documentation shows."""

    request: Any
    client: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            context_window=self.request.window,
            num_output=self.request.reply,
            is_chat_model=True,
            model_name=self.request.model,
        )

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        reply = self.client.chat.completions.create(
            model=self.request.model,
            messages=[{"role": m.role.value, "content": m.content or ""} for m in messages],
            max_tokens=self.request.reply,
            temperature=TEMPERATURE,
        )
        text = reply.choices[0].message.content or ""
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text))

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        response = self.chat([ChatMessage(role=MessageRole.USER, content=prompt)])
        return CompletionResponse(text=response.message.content or "")

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        raise NotImplementedError("replies are not streamed here")


def read(request: Request, tally: Tally, kind: str) -> None:
    """Runs `get_response_synthesizer(response_mode=kind)` over `SentenceSplitter`, with the model's own tokenizer."""
    tally.begin()
    encoder = request.encoder()
    Settings.tokenizer = lambda text: encoder.encode(text, add_special_tokens=False).ids
    tally.refines = kind == "refine"
    splitter = SentenceSplitter(chunk_size=request.chunk, chunk_overlap=0)
    with open_client(request, tally) as client:
        synthesizer = get_response_synthesizer(
            llm=Model(request=request, client=client), response_mode=ResponseMode(kind)
        )
        texts = splitter.split_text(request.text())
        tally.answer = str(synthesizer.get_response(request.question, texts))
