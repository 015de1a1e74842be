"""Transport retries that a meter can see."""

from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.retry import RunnableRetry
from tenacity import retry_if_exception, stop_after_attempt, wait_fixed

from costada.models.provider_errors import is_passing


class SteadyRetry(RunnableRetry[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """LangChain's retry with a constant wait, for passing errors of any provider.

    LangChain's own `with_retry` sets its waits through a parameter that its retry library has
    deprecated, and takes a test of the error in its newer versions only.
    Each attempt is a request of its own, unlike a retry inside a provider's client.

    Attributes:
        wait_seconds: Seconds between two attempts.
    """

    wait_seconds: float

    @property
    def _kwargs_retrying(self) -> dict[str, Any]:
        return {
            "stop": stop_after_attempt(self.max_attempt_number),
            "wait": wait_fixed(self.wait_seconds),
            "retry": retry_if_exception(is_passing),
        }


def with_retries(
    model: BaseChatModel, max_attempts: int, wait_seconds: float
) -> Runnable[LanguageModelInput, AIMessage]:
    """Return a model that sends a request again after a passing error.

    Args:
        model: The model to ask.
        max_attempts: Requests sent for one answer at most.
        wait_seconds: Seconds between two of them.
    """
    return SteadyRetry(bound=model, max_attempt_number=max_attempts, wait_seconds=wait_seconds)
