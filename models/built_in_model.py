"""What chat models with no language model behind them have in common."""

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LangSmithParams
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCall

from costada.models.providers import NO_PROVIDER
from costada.values.usage import Usage

TICKET = "costada_ticket"
"""Metadata of a call that distinguishes calls with equal messages."""


class BuiltInModel(BaseChatModel):
    """A chat model that needs neither key nor network; its `_llm_type` is its name.

    Attributes:
        seed: Chooses one of many equally good models.
    """

    seed: int = 0

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self._llm_type, "seed": self.seed}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider=NO_PROVIDER, ls_model_name=self._llm_type, ls_model_type="chat"
        )

    def _message(
        self, text: str, tokens: Usage, finish_reason: str, tool_calls: Sequence[ToolCall] = ()
    ) -> AIMessage:
        """An answer with the token counts that it is charged by."""
        return AIMessage(
            content=text,
            tool_calls=list(tool_calls),
            usage_metadata=UsageMetadata(
                input_tokens=tokens.input_tokens,
                output_tokens=tokens.output_tokens,
                total_tokens=tokens.input_tokens + tokens.output_tokens,
                input_token_details=InputTokenDetails(cache_read=tokens.cached_tokens),
                output_token_details=OutputTokenDetails(reasoning=tokens.reasoning_tokens),
            ),
            response_metadata={"model_name": self._llm_type, "finish_reason": finish_reason},
        )
