"""LangChain's `RefineDocumentsChain`. Importing this module imports LangChain (extra `peers`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import langsmith
from langchain_classic.chains.combine_documents.refine import RefineDocumentsChain
from langchain_classic.chains.llm import LLMChain
from langchain_classic.chains.question_answering.refine_prompts import (
    QUESTION_PROMPT_SELECTOR,
    REFINE_PROMPT_SELECTOR,
)
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from memagent.messages import Message, Role
from memagent_bench.systems.peers import Send

# Their types are partly unknown.
_LANGSMITH: Any = langsmith
_FIRST: Any = QUESTION_PROMPT_SELECTOR
_FURTHER: Any = REFINE_PROMPT_SELECTOR
ROLES: dict[str, Role] = {"system": "system", "human": "user", "ai": "assistant"}


class LangChainRefine:
    """The chain of `load_qa_chain(chain_type="refine")` with LangChain's prompts for chat models.

    Tracing is off regardless of the environment, and there is no cache.
    """

    def frames(self, question: str) -> Sequence[tuple[Message, ...]]:
        """See `Refine.frames`."""
        model = _Adapter(send=_nobody)
        empty = {"question": question, "context_str": "", "existing_answer": ""}
        prompts = (
            prompt.format_prompt(**{name: empty[name] for name in prompt.input_variables})
            for prompt in (_FIRST.get_prompt(model), _FURTHER.get_prompt(model))
        )
        return [_messages(prompt.to_messages()) for prompt in prompts]

    async def run(self, question: str, texts: Sequence[str], send: Send) -> str:
        """See `Refine.run`."""
        documents = [Document(page_content=text) for text in texts]
        with _LANGSMITH.tracing_context(enabled=False):
            answer, _ = await _chain(send).acombine_docs(documents, question=question)
        return answer


class _Adapter(BaseChatModel):
    """The shared model as a LangChain model."""

    send: Any
    """A `Send`."""
    cache: Any = False

    @property
    def _llm_type(self) -> str:
        return "memagent"

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        text = await self.send(_messages(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=text))])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("the chain is awaited")


def _chain(send: Send) -> Any:
    model = _Adapter(send=send)
    with warnings.catch_warnings():
        # LangChain has deprecated all its chains; they are what is compared here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return RefineDocumentsChain(
            initial_llm_chain=LLMChain(llm=model, prompt=_FIRST.get_prompt(model)),
            refine_llm_chain=LLMChain(llm=model, prompt=_FURTHER.get_prompt(model)),
            document_variable_name="context_str",
            initial_response_name="existing_answer",
        )


def _messages(messages: Sequence[BaseMessage]) -> tuple[Message, ...]:
    return tuple(Message(role=ROLES[m.type], content=str(m.content)) for m in messages)


async def _nobody(messages: tuple[Message, ...]) -> str:
    raise NotImplementedError("this model only chooses prompts")
