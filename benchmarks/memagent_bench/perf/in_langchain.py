"""LangChain's question-answering chains as a reader (extra `peers`)."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_classic.chains.question_answering import load_qa_chain
from langchain_core.documents import Document
from langchain_openai import ChatOpenAI
from langchain_text_splitters import RecursiveCharacterTextSplitter

from memagent_bench.perf.readers import TEMPERATURE, Request, Tally

_CHAT: Any = ChatOpenAI
_CHAINS: Any = load_qa_chain


def read(request: Request, tally: Tally, kind: str) -> None:
    """Runs `load_qa_chain(chain_type=kind)` over LangChain's splitter and `ChatOpenAI`.

    A refine chain shows its answer so far only through callbacks, so the first reply counts as the first result.
    """
    tally.begin()
    encoder = request.encoder()
    splitter = RecursiveCharacterTextSplitter(
        chunk_size=request.chunk, chunk_overlap=0, length_function=request.size()
    )
    model = _CHAT(
        model=request.model,
        base_url=request.base_url,
        api_key="EMPTY",
        temperature=TEMPERATURE,
        max_tokens=request.reply,
        max_retries=0,
        http_client=tally.client(),
        custom_get_token_ids=lambda text: encoder.encode(text, add_special_tokens=False).ids,
    )
    # As many partial answers as fit are combined at once.
    more = {"token_max": request.window - 2 * request.reply} if kind == "map_reduce" else {}
    tally.refines = kind == "refine"
    with warnings.catch_warnings():
        # LangChain has deprecated all its chains; they are what is compared here.
        warnings.simplefilter("ignore")
        chain = _CHAINS(model, chain_type=kind, **more)
        documents = [Document(page_content=text) for text in splitter.split_text(request.text())]
        result = chain.invoke({"input_documents": documents, "question": request.question})
    tally.answer = result["output_text"]
