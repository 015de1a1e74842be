"""A chat model that proposes programs of a simulated landscape; no language model is behind it."""

import hashlib
from dataclasses import replace
from random import Random
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

from costada.experiments.landscape.answering import answered
from costada.experiments.landscape.tokens import Tokens
from costada.values.prompt_data import prompt_data

MODEL_NAME = "simulated"

ITERATION = "costada_iteration"
"""Metadata of a call that tells apart calls with equal messages."""


class SimulatedModel(BaseChatModel):
    """A stochastic stand-in for a language model on the problem "landscape".

    Scores, failures and token counts follow the distributions in docs/understand/landscape.md. The
    same seed, messages and iteration always get the same answer; independent attempts that start
    from the same prompt differ by their iteration. Of an answer longer than `max_tokens`, where
    that is bound to the model, nothing is left.

    Attributes:
        seed: Chooses the landscape and the draws on it.
    """

    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": MODEL_NAME, "seed": self.seed}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider="costada", ls_model_name=MODEL_NAME, ls_model_type="chat"
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        metadata = run_manager.metadata if run_manager else {}
        rng = _generator(self.seed, messages, metadata.get(ITERATION))
        text, tokens = answered(prompt_data(messages[-1].additional_kwargs), self.seed, rng)
        limit, reason = kwargs.get("max_tokens"), "stop"
        if limit is not None and tokens.given > limit:
            text, tokens, reason = "", replace(tokens, given=limit), "length"
        message = AIMessage(
            content=text,
            usage_metadata=_usage(tokens),
            response_metadata={"model_name": MODEL_NAME, "finish_reason": reason},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def _generator(seed: int, messages: list[BaseMessage], iteration: object) -> Random:
    prompt = "\n\n".join(message.text for message in messages)
    digest = hashlib.sha256(f"{seed}\n{iteration}\n{prompt}".encode()).digest()
    return Random(int.from_bytes(digest))


def _usage(tokens: Tokens) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=tokens.taken,
        output_tokens=tokens.given,
        total_tokens=tokens.taken + tokens.given,
    )
