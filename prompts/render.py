"""Values in, messages out: the templates and what they may use."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from costada.prompts.edits import fenced
from costada.prompts.replies import BLOCK_START
from costada.prompts.requests import GenerationRequest, GuideRequest
from costada.values.prompt_data import PromptData

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TEXT_LIMIT = 2000
"""Characters shown of an error, an artifact or a feedback text."""

CODE_LIMIT = 1500
"""Characters shown of a program that failed."""

STRATEGY_LIMIT = 6000
"""Characters shown of a search strategy that is not the one to improve on."""

INSIGHT_LIMIT = 6000
"""Characters shown of what a model said about the population."""

CHANGES_LIMIT = 200
"""Characters shown of what was changed in a program that is only listed."""

LONG_PROGRAM = 500
"""Characters from which on a program is asked to become simpler."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The two messages of one call, and what the second is made of."""

    system: str
    user: str
    data: PromptData | None = None


def generation_prompt(request: GenerationRequest) -> Prompt:
    """The messages that ask for a changed program."""
    return Prompt(request.task, render("generate.txt", **fields_of(request)), request.data)


def guide_prompt(request: GuideRequest) -> Prompt:
    """The messages that ask for tactics, worded for the request's mode."""
    values = fields_of(request)
    user = render(f"guide_{request.mode}.txt", **values)
    return Prompt(render("guide_system.txt", **values), user, request.data)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of the text, with a note where more was dropped."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[the first {limit} of {len(text)} characters]"


def render(template: str, **values: object) -> str:
    """A template filled with values, ending in one newline."""
    return _TEMPLATES.get_template(template).render(values).strip() + "\n"


def fields_of(request: "DataclassInstance") -> dict[str, object]:
    """The fields of a record by name, as they are."""
    return {field.name: getattr(request, field.name) for field in fields(request)}


_TEMPLATES = Environment(
    loader=PackageLoader("costada.prompts"),
    undefined=StrictUndefined,
    auto_reload=False,
    autoescape=False,  # noqa: S701  the messages are plain text, not HTML
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {
    "fence": fenced,
    "cut": cut,
    "one_line": lambda text: " ".join(text.split()),
    "decimals": "{:.4f}".format,
    "long_decimals": "{:.6f}".format,
    "signed_decimals": "{:+.4f}".format,
    "signed_long_decimals": "{:+.6f}".format,
    "seconds": "{:g}".format,
}
_TEMPLATES.globals |= {
    "TEXT_LIMIT": TEXT_LIMIT,
    "CODE_LIMIT": CODE_LIMIT,
    "STRATEGY_LIMIT": STRATEGY_LIMIT,
    "INSIGHT_LIMIT": INSIGHT_LIMIT,
    "CHANGES_LIMIT": CHANGES_LIMIT,
    "LONG_PROGRAM": LONG_PROGRAM,
    "EVOLVE_START": BLOCK_START,
}
