"""A prompt and what was said since: answers that call tools, and what the tools returned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from costada.models.replies import text_with_tool_calls
from costada.prompts.render import Prompt


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request sends.

    Attributes:
        prompt: The two messages that it begins with.
        later: The messages since.
    """

    prompt: Prompt
    later: tuple[BaseMessage, ...] = ()

    def followed_by(self, messages: Sequence[BaseMessage]) -> "Conversation":
        """Return the conversation with more messages at its end."""
        return replace(self, later=(*self.later, *messages))

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages that are sent."""
        data = self.prompt.data
        user = HumanMessage(self.prompt.user, additional_kwargs=data.kwargs if data else {})
        return [SystemMessage(self.prompt.system), user, *self.later]

    @property
    def as_prompt(self) -> Prompt:
        """The conversation as two texts, for the journal: the same whenever it is led again."""
        return Prompt(self.prompt.system, "\n\n".join([self.prompt.user, *map(_told, self.later)]))


def _told(message: BaseMessage) -> str:
    if isinstance(message, ToolMessage):
        return f"[tool] {message.name}\n{text_with_tool_calls(message)}"
    return f"[assistant]\n{text_with_tool_calls(message)}"
