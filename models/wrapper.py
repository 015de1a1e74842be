"""What is put around a chat model: one asynchronous path, and a bridge for synchronous callers."""

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase

from costada.models.event_loop import run


class ModelWrapper(RunnableBindingBase[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """A chat model, perhaps with something bound to it, whose requests a subclass changes.

    A subclass says in `ainvoke` what happens to a request. Streams pass unchanged.
    """

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Do what `ainvoke` does, in the loop of paid calls."""
        return run(self.ainvoke(input, config, **kwargs))

    # A binding would pass a batch on to what is bound, past `ainvoke`.
    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Ask for each input."""
        return Runnable.batch(self, inputs, config, return_exceptions=return_exceptions, **kwargs)

    async def abatch(
        self,
        inputs: list[LanguageModelInput],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Ask for each input."""
        return await Runnable.abatch(
            self, inputs, config, return_exceptions=return_exceptions, **kwargs
        )
