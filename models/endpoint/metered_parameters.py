"""Which requests can be metered: those that tokens of the model that they name pay for.

Others are refused: they would be billed by something else than tokens, ask another model than the
one they name, or be answered when nobody counts any more.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from costada.models.endpoint.exchange import Dialect, Refusal

_OF_OPENAI = frozenset(
    {
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
    }
)

_PARAMETERS: Mapping[Dialect, frozenset[str]] = {
    Dialect.CHAT: _OF_OPENAI
    | {
        "chat_template_kwargs",
        "enable_thinking",
        "frequency_penalty",
        "function_call",
        "functions",
        "include_reasoning",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "modalities",
        "n",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "seed",
        "stop",
        "thinking",
        "thinking_budget",
        "top_k",
        "usage",
        "verbosity",
        "vl_high_resolution_images",
    },
    Dialect.RESPONSES: _OF_OPENAI
    | {
        "client_metadata",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "previous_response_id",
        "text",
        "truncation",
    },
    Dialect.EMBEDDINGS: frozenset(
        {"dimensions", "encoding_format", "input", "input_type", "model", "truncate", "user"}
    ),
    Dialect.MESSAGES: frozenset(
        {
            "cache_control",
            "context_management",
            "max_tokens",
            "messages",
            "metadata",
            "model",
            "output_config",
            "output_format",
            "service_tier",
            "stop_sequences",
            "stream",
            "system",
            "temperature",
            "thinking",
            "tool_choice",
            "tools",
            "top_k",
            "top_p",
        }
    ),
}
"""Parameters of requests that tokens of the model pay for; a provider may bill others by more."""

METERED_BETAS = (
    "advanced-tool-use-",
    "claude-code-",
    "computer-use-",
    "context-management-",
    "effort-",
    "extended-cache-ttl-",
    "fine-grained-tool-streaming-",
    "interleaved-thinking-",
    "output-128k-",
    "prompt-caching-",
    "structured-outputs-",
    "token-efficient-tools-",
    "tool-examples-",
)
"""Features of Anthropic that tokens of the model pay for, before their dates."""

_REFERENCES = ("conversation", "previous_response_id")
"""Parameters by which a model reads what the request does not hold."""

_TOOLS_OF_CLIENTS = frozenset({"function", "custom", "local_shell", "apply_patch"})
_ANTHROPIC_TOOLS_OF_CLIENTS = ("bash_", "computer_", "memory_", "text_editor_")

_TEXT_PARTS = frozenset(
    {
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "input_text",
        "message",
        "output_text",
        "reasoning",
        "redacted_thinking",
        "refusal",
        "text",
        "thinking",
        "tool_result",
        "tool_use",
    }
)
"""Types of parts of a conversation of which the bytes bound the tokens."""


def refuse_unmetered(dialect: Dialect, given: Mapping[str, Any]) -> None:
    """Refuse a body that asks for more than tokens of the model pay for.

    Raises:
        Refusal: It does.
    """
    for name, value in given.items():
        if name not in _PARAMETERS[dialect] and value not in (None, False):
            raise Refusal(400, "not_metered", f"{name[:50]}: requests with it cannot be metered")
    management = given.get("context_management") or {"edits": []}
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = [
        each.get("type") if isinstance(each, Mapping) else None
        for each in (edits if isinstance(edits, list) else [None])
    ]
    if not all(str(kind).startswith("clear_") for kind in kinds):  # others ask a model
        raise Refusal(400, "not_metered", "context_management: expected edits that clear parts")
    if given.get("modalities") not in (None, ["text"]):
        raise Refusal(400, "not_metered", "modalities: expected text alone")
    for kind in _kinds(given.get("tools")):
        is_of_client = str(kind) in _TOOLS_OF_CLIENTS or (
            dialect is Dialect.MESSAGES
            and (kind is None or str(kind).startswith(_ANTHROPIC_TOOLS_OF_CLIENTS))
        )
        if not is_of_client:
            raise Refusal(
                400, "not_metered", f"tools: got type {kind!r}, expected tools that the client runs"
            )


def _kinds(tools: object) -> Iterator[object]:
    """The types of tools, in namespaces too."""
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if kind == "namespace":
            yield from _kinds(tool.get("tools"))
        else:
            yield kind


def is_all_text(dialect: Dialect, given: Mapping[str, Any]) -> bool:
    """Whether a model that is given a body reads nothing but its text."""
    if any(given.get(name) for name in _REFERENCES):
        return False
    if dialect is Dialect.EMBEDDINGS:
        return True
    kinds = _kinds(given.get("tools"))
    has_plain_tools = all(kind in (None, "function", "custom") for kind in kinds)
    return has_plain_tools and all(
        _is_text(given.get(name)) for name in ("messages", "input", "system", "instructions")
    )


def _is_text(part: object) -> bool:
    if isinstance(part, list):
        return all(map(_is_text, part))
    if not isinstance(part, Mapping):
        return True
    is_text = str(part.get("type", "text")) in _TEXT_PARTS and not part.get("audio")
    # The provider may have kept what belongs to an id: reasoning, or any item without a type.
    if part.get("type") == "reasoning":
        is_text = bool(part.get("encrypted_content"))
    elif "id" in part and not {"role", "type"} & part.keys():
        is_text = False
    return is_text and _is_text(part.get("content")) and _is_text(part.get("output"))
