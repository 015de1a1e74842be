"""The chat models inside a runnable: found, identified, replaced; and what a request says."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import (
    Runnable,
    RunnableBranch,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase, RunnableEachBase
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
    RunnableConfigurableFields,
)
from pydantic import BaseModel

from costada.models.langchain_openai import (
    RequestFacts,
    client_address,
    messages_of,
    request_facts,
    request_metadata,
)

UPSTREAM = "costada_upstream"
"""In the metadata of a model that calls through a gateway: the address of its provider."""

# `mapper` and `steps__` are of assignments and parallels, `deps` of functions.
_PARTS = ("bound", "runnable", "mapper", "steps", "steps__", "deps", "branches", "default")
_REPLACEABLE_PARTS = frozenset({"bound", "runnable", "fallbacks", "first", "middle", "last"})
_FORWARDING = (RunnableWithFallbacks, RunnableBranch, RunnableEachBase, DynamicRunnable)
"""Runnables that pass the parameters of a call on to each of their parts."""

_VERSION = re.compile(r"-[\d.-]+")
"""What LangChain appends to the name of a model whose version it knows, Azure's for one."""

_SECRET = re.compile(r"key|secret|password|credential|authorization|header|token$", re.IGNORECASE)
"""Parameters that are left out of what is written down."""


class AskedModel(NamedTuple):
    """A chat model, perhaps inside a runnable, and what the runnable binds to its requests.

    It says who answers without asking; `name` and `provider` are those that a CallMeter reports.
    """

    model: BaseChatModel
    bound: Mapping[str, Any] = MappingProxyType({})

    @property
    def name(self) -> str:
        """The name of the model at its provider."""
        return requested_model(request_facts(self.model, self.bound))

    @property
    def provider(self) -> str | None:
        """The provider's name as LangChain reports it, if it does; found faster than `name`."""
        found = request_metadata(self.model, self.bound).get("ls_provider")
        return str(found) if found else None

    @property
    def base_url(self) -> str | None:
        """The address of the provider, if known, also where a gateway is asked."""
        upstream = (self.model.metadata or {}).get(UPSTREAM)
        return str(upstream) if upstream else client_address(self.model)

    @property
    def shown_url(self) -> str | None:
        """Its `base_url` without user, password and query, which may be secrets."""
        if (base_url := self.base_url) is None:
            return None
        parts = urlsplit(base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def service_tier(self) -> str | None:
        """The service tier that its requests ask for, `None` without one."""
        tier = sent_parameters(request_facts(self.model, self.bound).params).get("service_tier")
        return tier if isinstance(tier, str) and tier else None


def underlying_models(runnable: Runnable[Any, Any]) -> tuple[BaseChatModel, ...]:
    """The chat models a runnable holds, in its order, each of them once.

    Bindings, retries, fallbacks, sequences (as structured output makes them), parallels and
    branches are looked into, and functions as far as LangChain sees through them. A model that
    is built or chosen only at run time is not found.
    """
    found = {id(model): model for model, _ in _walk(runnable, is_configured=False)}
    return tuple(found.values())


def asked_models(runnable: Runnable[Any, Any]) -> tuple[AskedModel, ...]:
    """The chat models a runnable can ask, each with all that is bound to it.

    As `underlying_models`, but a model that is bound in two ways is found twice, and one with
    configurable fields is found as it is configured.
    """
    return tuple(_walk(runnable, is_configured=True))


def _walk(runnable: Runnable[Any, Any], *, is_configured: bool) -> Iterator[AskedModel]:
    pending: list[tuple[Runnable[Any, Any], Mapping[str, Any]]] = [(runnable, {})]
    # A list: bound parameters, such as tools, cannot be hashed.
    seen: list[tuple[Runnable[Any, Any], Mapping[str, Any]]] = []
    while pending:
        current, bound = pending.pop(0)
        if any(current is each and bound == given for each, given in seen):
            continue
        seen.append((current, bound))
        if isinstance(current, BaseChatModel):
            yield AskedModel(current, bound)
        else:
            pending[:0] = _parts(current, bound, is_configured=is_configured)


def _parts(
    runnable: Runnable[Any, Any], bound: Mapping[str, Any], *, is_configured: bool
) -> list[tuple[Runnable[Any, Any], Mapping[str, Any]]]:
    """The parts of a composed runnable, each with the parameters it is given.

    LangChain has no one name for a part, and fallbacks and configurable runnables show those of
    their first part as their own. A sequence passes parameters to its first step, functions and
    parallels to none.
    """
    if isinstance(runnable, RunnableBindingBase):
        return [(runnable.bound, {**runnable.kwargs, **bound})]
    if isinstance(runnable, RunnableConfigurableFields):
        return [(runnable.prepare()[0] if is_configured else runnable.default, bound)]
    if isinstance(runnable, RunnableConfigurableAlternatives):
        held: list[object] = [runnable.default, *runnable.alternatives.values()]
        held += [runnable.prepare()[0]] if is_configured else []
    elif isinstance(runnable, RunnableWithFallbacks):
        held = [runnable.runnable, *runnable.fallbacks]
    else:
        held = [part for name in _PARTS for part in _flat(getattr(runnable, name, None))]
    parts = [part for part in held if isinstance(part, Runnable)]
    if isinstance(runnable, RunnableSequence):
        return [(part, {} if number else bound) for number, part in enumerate(parts)]
    is_forwarding = isinstance(runnable, _FORWARDING)
    return [(part, bound if is_forwarding else {}) for part in parts]


def _flat(parts: object) -> list[object]:
    if isinstance(parts, Mapping):
        return _flat(list(parts.values()))
    if isinstance(parts, list | tuple):
        return [member for part in parts for member in _flat(part)]
    return [parts]


def returns_raw_answers(runnable: Runnable[Any, Any]) -> bool:
    """Whether a runnable returns what its model answers unchanged.

    True for a chat model, bound, retried or with fallbacks; anything else may change the answer.
    """
    if isinstance(runnable, BaseChatModel):
        return True
    if isinstance(runnable, RunnableWithFallbacks):
        return all(map(returns_raw_answers, (runnable.runnable, *runnable.fallbacks)))
    return isinstance(runnable, RunnableBindingBase) and returns_raw_answers(runnable.bound)


def requested_model(facts: RequestFacts) -> str:
    """Name the model that a request asks, as its provider knows it.

    Prices, bounds, journal and purse all use this name. What is sent decides: a bound `model`
    replaces the one of the constructor, and one in `extra_body` replaces both. LangChain's own name
    counts where it is the same without a path or with a version.
    """
    params, reported = facts.params, str(facts.metadata.get("ls_model_name") or "")
    names = (sent_parameters(params).get("model"), params.get("model"), params.get("model_name"))
    sent = next((name for name in names if name and isinstance(name, str)), "")
    is_same = sent.endswith(f"/{reported}") or _VERSION.fullmatch(reported.removeprefix(sent))
    if reported and is_same and sent in names[1:]:
        return reported
    return sent or reported or str(facts.serialized.get("name") or "unknown")


def sent_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a request's body says: `extra_body` replaces the other parameters."""
    extra = params.get("extra_body")
    return {**params, **(extra if isinstance(extra, Mapping) else {})}


def model_facts(runnable: Runnable[Any, Any]) -> dict[str, object]:
    """What decides how the models of a runnable answer, in plain values.

    Class, provider, name and address of each chat model, and the parameters of its requests except
    for the seed. What may hold a key is left out.
    """
    described: list[dict[str, object]] = []
    for asked in asked_models(runnable):
        described.append(
            {
                **_without_secrets(request_facts(*asked).params),
                "class": type(asked.model).__qualname__,
                "name": asked.name,
                "provider": asked.provider,
                "base_url": asked.shown_url,
            }
        )
    if len(described) == 1:
        return described[0]
    return {str(number): each for number, each in enumerate(described, 1)}


def _without_secrets(params: Mapping[str, Any]) -> dict[str, object]:
    return {
        name: _without_secrets(value) if isinstance(value, Mapping) else value
        for name, value in params.items()
        if value is not None and name != "seed" and not _SECRET.search(name)
    }


def with_models_changed(
    runnable: Runnable[Any, Any], change: Callable[[BaseChatModel], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """A runnable like the given one, with each chat model in it replaced by its change.

    Bindings, retries, fallbacks and sequences are looked into; the given runnable stays as it is.
    """
    if isinstance(runnable, BaseChatModel):
        return change(runnable)
    # Functions, for instance: a model that one calls is found, and cannot be replaced in it.
    if not isinstance(runnable, BaseModel):
        return runnable

    def changed(part: Any) -> Any:
        if isinstance(part, list | tuple):
            return [changed(each) for each in part]
        return with_models_changed(part, change) if isinstance(part, Runnable) else part

    names = _REPLACEABLE_PARTS & type(runnable).model_fields.keys()
    return runnable.model_copy(update={name: changed(getattr(runnable, name)) for name in names})


def with_every_model_changed(
    runnable: Runnable[Any, Any],
    change: Callable[[BaseChatModel], Runnable[Any, Any]],
    failing: str,
) -> Runnable[Any, Any]:
    """As `with_models_changed`, but no model may stay as it is.

    Raises:
        ValueError: The runnable is composed in a way in which a model cannot be replaced, or
            holds none; the message says with `failing` what cannot be done then.
    """
    reached: list[BaseChatModel] = []

    def noted(part: BaseChatModel) -> Runnable[Any, Any]:
        reached.append(part)
        return change(part)

    changed, parts = with_models_changed(runnable, noted), underlying_models(runnable)
    if not parts or any(all(part is not each for each in reached) for part in parts):
        raise ValueError(
            f"model: got {type(runnable).__name__}, in which {failing}; expected a chat model,"
            " bare or in bindings, retries, fallbacks and sequences"
        )
    return changed


JOURNAL = "costada_journal"
"""In the metadata of a model that calls through a gateway: the id of the gateway's journal."""

OUTPUT_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What providers call the most tokens that an answer may have."""

STANDARD_CAP = "max_tokens"
"""What LangChain calls it where a model does not say."""

FRAME_TOKENS = 32
"""Tokens that a provider adds around one message, at most."""

_READ_BESIDE_CONTENT = ("tool_calls", "invalid_tool_calls", "tool_call_id", "name")
"""What of a message a model reads besides its content."""

_READ_BESIDE_MESSAGES = ("tools", "functions", "response_format")
"""Parameters of a request that become part of what the model reads."""

_READ_ELSEWHERE = (
    "conversation",
    "plugins",
    "previous_response_id",
    "prompt",
    "web_search_options",
)
"""Parameters of a request by which a model reads what the request does not hold."""


class OutgoingRequest(NamedTuple):
    """Who is asked, and how much may be read and written.

    Attributes:
        model: The model's name at its provider.
        provider: The provider's name as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says; of several
            limits the highest, as a provider may honour any of them.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
        is_all_text: Whether the model reads nothing but the text of the request. Of an image, a
            file or a search on the web the bytes sent do not bound the tokens.
        number: Position among the requests of its logical call, from 1; 0 before it leaves.
        gateway: Id of the journal of the gateway that it goes through; empty without one.
    """

    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int
    is_all_text: bool = True
    number: int = 0
    gateway: str = ""


def outgoing_request(facts: RequestFacts, prompts: Sequence[BaseMessage | str]) -> OutgoingRequest:
    """Describe a request from what LangChain passes to its callbacks."""
    provider, sent = facts.metadata.get("ls_provider"), sent_parameters(facts.params)
    choices = sent.get("n")
    return OutgoingRequest(
        model=requested_model(facts),
        provider=str(provider) if provider else None,
        output_cap=max(stated_caps(sent), default=None),
        choices=choices if isinstance(choices, int) and choices > 1 else 1,
        input_bound=sum(map(_size, prompts))
        + FRAME_TOKENS * len(prompts)
        + sum(_json_size(sent[name]) for name in _READ_BESIDE_MESSAGES if sent.get(name)),
        is_all_text=all(map(_is_text, prompts))
        and all(map(_is_run_by_caller, sent.get("tools") or ()))
        and not any(sent.get(name) for name in _READ_ELSEWHERE),
        gateway=str(facts.metadata.get(JOURNAL, "")),
    )


def bounded_request(
    model: BaseChatModel, given: LanguageModelInput, bound: Mapping[str, Any]
) -> OutgoingRequest:
    """Describe a request before LangChain does; of several limits of the answer the lowest."""
    facts = request_facts(model, bound)
    caps = [*stated_caps(vars(model)), *stated_caps(facts.params)]
    caps += stated_caps(facts.params.get("extra_body") or {})
    request = outgoing_request(facts, messages_of(model, given))
    return request._replace(output_cap=min(caps, default=None))


def stated_caps(params: Mapping[str, Any]) -> list[int]:
    """The numbers of tokens to which a request limits its answer, whatever their names."""
    caps = [params.get(name) for name in OUTPUT_CAPS]
    return [cap for cap in caps if isinstance(cap, int)]


def byte_size(text: str) -> int:
    """The bytes of a text: no tokenizer makes more tokens of it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _size(prompt: BaseMessage | str) -> int:
    if isinstance(prompt, str):
        return byte_size(prompt)
    content = prompt.content
    beside = [getattr(prompt, name, None) for name in _READ_BESIDE_CONTENT]
    size = byte_size(content) if isinstance(content, str) else _json_size(content)
    return size + sum(_json_size(each) for each in beside if each)


def _json_size(value: object) -> int:
    def plain(value: object) -> object:
        if isinstance(value, type) and issubclass(value, BaseModel):
            return value.model_json_schema()
        return str(value)

    return byte_size(json.dumps(value, default=plain, ensure_ascii=False))


def _is_text(prompt: BaseMessage | str) -> bool:
    if isinstance(prompt, str) or isinstance(prompt.content, str):
        return True
    return all(isinstance(block, str) or block.get("type") == "text" for block in prompt.content)


def _is_run_by_caller(tool: object) -> bool:
    """Whether the caller runs a tool; a tool of the provider brings its own text."""
    return not isinstance(tool, Mapping) or tool.get("type", "function") in ("function", "custom")
