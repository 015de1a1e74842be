"""What the offline model reads beside a prompt: programs, a tactic, or what is asked for."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from costada.values.prompt_data import PromptData, prompt_data


def asked(messages: Sequence[BaseMessage]) -> PromptData | None:
    """Data of the first message that has any; None if no message has."""
    found = (prompt_data(each.additional_kwargs) for each in messages)
    return next((data for data in found if data is not None), None)


def shown_text(code: str) -> str:
    """A program as a prompt shows it: without blank lines at its ends."""
    stripped = code.strip("\n")
    return f"{stripped}\n"
