"""LlamaIndex's `Refine` response synthesizer. Importing this module imports LlamaIndex (extra `peers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.indices.prompt_helper import ChatPromptHelper, PromptHelper
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.prompts.chat_prompts import CHAT_REFINE_PROMPT, CHAT_TEXT_QA_PROMPT
from llama_index.core.response_synthesizers import Refine

from memagent.messages import Message, Role
from memagent_bench.systems.peers import Send

ROLES: dict[MessageRole, Role] = {
    MessageRole.SYSTEM: "system",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
}


class LlamaIndexRefine:
    """`Refine` with LlamaIndex's prompts for chat models.

    It doesn't split the chunks again: they already fit by the model's tokenizer, whereas LlamaIndex would use
    GPT-3.5's. No global setting of LlamaIndex is used or changed.
    """

    def frames(self, question: str) -> Sequence[tuple[Message, ...]]:
        """See `Refine.frames`."""
        return [
            _messages(CHAT_TEXT_QA_PROMPT.format_messages(query_str=question, context_str="")),
            _messages(
                CHAT_REFINE_PROMPT.format_messages(
                    query_str=question, context_msg="", existing_answer=""
                )
            ),
        ]

    async def run(self, question: str, texts: Sequence[str], send: Send) -> str:
        """See `Refine.run`."""
        callbacks = CallbackManager([])
        # Helpers never count here; without a tokenizer they would load GPT-3.5's.
        helper = cast("Any", _AsTheyAre)(tokenizer=list)
        synthesizer = Refine(
            llm=_Adapter(send=send, callback_manager=callbacks),
            callback_manager=callbacks,
            prompt_helper=helper,
            chat_prompt_helper=ChatPromptHelper(tokenizer=list),
            text_qa_template=CHAT_TEXT_QA_PROMPT,
            refine_template=CHAT_REFINE_PROMPT,
        )
        answer = await synthesizer.aget_response(question, texts)
        return str(answer)


class _AsTheyAre(PromptHelper):
    """Leaves chunks unchanged."""

    def repack(self, prompt: Any, text_chunks: Sequence[str], *_: Any, **__: Any) -> list[str]:
        return list(text_chunks)


class _Adapter(CustomLLM):
    """The shared model as a LlamaIndex model."""

    send: Any
    """A `Send`."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, model_name="memagent")

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        text = await self.send(_messages(messages))
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text))

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError("the loop is awaited, and chats")

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        raise NotImplementedError("the loop is awaited, and chats")


def _messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    return tuple(Message(role=ROLES[m.role], content=m.content or "") for m in messages)
