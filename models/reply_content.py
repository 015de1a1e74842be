"""What a provider's reply says: text, token counts, cost and origin."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.utils.utils import LC_ID_PREFIX

from costada.values.usage import NO_TOKENS, Usage

MESSAGE_MARK = "\x1e"
"""Separates the words of a stored message from its JSON form, which never holds it."""

_STORED_FIELDS = {
    "content",
    "tool_calls",
    "invalid_tool_calls",
    "additional_kwargs",
    "response_metadata",
}

_BYTES_PER_TOKEN = 3
_ONE_HOUR_WRITES = "ephemeral_1h_input_tokens"
_CACHE_WRITES = ("ephemeral_5m_input_tokens", _ONE_HOUR_WRITES)


def encodable_text(text: str) -> str:
    """A text without half of a surrogate pair.

    JSON can bring halves, and no request, file or database takes them. Two that belong together,
    as the parts of a stream can bring them, become their character, and one alone a replacement
    character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encodable_message(message: AIMessage) -> AIMessage:
    """An answer in which everything can be encoded."""

    def encodable(value: Any) -> Any:
        if isinstance(value, str):
            return encodable_text(value)
        if isinstance(value, Mapping):
            return {encodable(key): encodable(each) for key, each in value.items()}
        return [encodable(each) for each in value] if isinstance(value, list | tuple) else value

    # Nearly every answer can be encoded, and to copy one takes longer than to look through it.
    texts = {name: getattr(message, name) for name in (*_STORED_FIELDS, "id", "name")}
    if _can_be_encoded(texts):
        return message
    return message.model_copy(update={name: encodable(value) for name, value in texts.items()})


def _can_be_encoded(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or encodable_text(value) is value
    if isinstance(value, Mapping):
        return all(_can_be_encoded(each) for item in value.items() for each in item)
    return not isinstance(value, list | tuple) or all(map(_can_be_encoded, value))


def answer_text(message: BaseMessage) -> str:
    """The words of a message; reasoning, images and tool calls are left out.

    Content may be a string or a list of strings and typed blocks, as providers differ.
    """
    if isinstance(message.content, str):
        return message.content
    words = []
    for block in message.content:
        text = block if isinstance(block, str) else block.get("text")
        is_text = isinstance(block, str) or block.get("type") == "text"
        words.append(text if is_text and isinstance(text, str) else "")
    return "".join(words)


def text_with_tool_calls(message: BaseMessage) -> str:
    """The words of a message and below them the tools that it calls, for people to read."""
    parts = [answer_text(message)]
    if isinstance(message, AIMessage):
        calls: list[tuple[str | None, dict[str, Any]]] = [
            (call["name"], call["args"]) for call in message.tool_calls
        ]
        calls += [(call["name"], {"": call["args"]}) for call in message.invalid_tool_calls]
        for name, arguments in calls:
            lines = [f"[tool call] {name}"]
            for field, value in arguments.items():
                shown = value if isinstance(value, str) else json.dumps(value)
                lines.append(f"{field}: {shown}" if field else shown)
            parts.append("\n".join(lines))
    return "\n\n".join(part for part in parts if part)


def message_to_text(message: BaseMessage) -> str:
    """The text as which a message is stored: its words, and all of it where it calls tools.

    `message_from_text` makes the message of it again, and `visible_text` what a person should see.
    """
    words = answer_text(message)
    is_plain = not isinstance(message, AIMessage) or not calls_tools(message)
    if is_plain and MESSAGE_MARK not in words:
        return words
    whole = message.model_dump(mode="json", include=_STORED_FIELDS, fallback=str)
    return f"{text_with_tool_calls(message)}{MESSAGE_MARK}{json.dumps(whole)}"


def message_from_text(text: str) -> AIMessage:
    """The message that was stored as a text, without its token counts."""
    _, mark, whole = text.rpartition(MESSAGE_MARK)
    return AIMessage.model_validate(json.loads(whole)) if mark else AIMessage(text)


def visible_text(text: str) -> str:
    """The part of a stored message that is for people: its words and the tools it calls."""
    words, mark, _ = text.rpartition(MESSAGE_MARK)
    return words if mark else text


def calls_tools(message: AIMessage) -> bool:
    """Whether a message calls tools, in a form that can be read or not."""
    return bool(message.tool_calls or message.invalid_tool_calls)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as far as it arrived.

    Attributes:
        answer: Text of the first choice, as `message_to_text` makes it of one that calls tools.
        finish_reason: Why the model stopped, in the provider's words.
        provider_id: The provider's id of the response.
        usage: Billed tokens of all choices together, or None if the provider reported none.
        is_cache_hit: A LangChain cache answered instead of a provider.
        cost: What the provider says it charged in dollars, if it does.
        service_tier: The service tier that answered, in the provider's words, if it says.
    """

    answer: str
    finish_reason: str | None = None
    provider_id: str | None = None
    usage: Usage | None = None
    is_cache_hit: bool = False
    cost: Decimal | None = None
    service_tier: str | None = None

    @property
    def is_counted(self) -> bool:
        """Whether the provider reported all counts: an answer with content has tokens."""
        return self.usage is not None and bool(self.usage.output_tokens or not self.answer)


NO_REPLY = Reply("")


def read_reply(result: LLMResult) -> Reply:
    """What one successful request brought.

    Each of several choices repeats the counts of the whole response: they are read once.
    """
    choices = list(_choices(result))
    message = _message(choices[0]) if choices else AIMessage("")
    message = encodable_message(message) if isinstance(message, AIMessage) else message
    facts = {**(result.llm_output or {}), **message.response_metadata}
    for choice in choices[:1]:
        facts |= choice.generation_info or {}
    usage = _message_usage(result)
    if usage is None and result.llm_output is not None:
        usage = usage_from_record(result.llm_output.get("token_usage"))
    metadata: object = getattr(message, "usage_metadata", None)
    return Reply(
        answer=message_to_text(message),
        finish_reason=_text(facts.get("finish_reason") or facts.get("stop_reason")),
        provider_id=_text(facts.get("id")) or response_id(message),
        usage=usage,
        # LangChain gives a message from its cache a total cost of zero.
        is_cache_hit=isinstance(metadata, Mapping) and metadata.get("total_cost") == 0,
        cost=reported_cost(facts.get("token_usage")),
        service_tier=_text(facts.get("service_tier")),
    )


def response_id(message: BaseMessage) -> str | None:
    """The provider's id of the response that a message is from; LangChain numbers some itself."""
    return None if (message.id or "").startswith(LC_ID_PREFIX) else _text(message.id)


def read_failure(result: object, arrived: str) -> Reply:
    """What is known of the answer to a failed request, some of whose text may have arrived.

    A provider bills an answer that LangChain then fails to parse. Its body, kept with the record
    that came with the error (`result`), holds the price of it.
    """
    if not isinstance(result, LLMResult):
        return Reply(arrived)
    for choice in _choices(result):
        body = _message(choice).response_metadata.get("body")
        if not isinstance(body, Mapping):
            continue
        usage = usage_from_record(body.get("usage"))
        # A body that holds answers, by either protocol's name, must count their tokens.
        holds_answers = bool(body.get("choices") or body.get("output"))
        if usage is not None and (usage.output_tokens or not holds_answers):
            return Reply(
                arrived,
                provider_id=_text(body.get("id")),
                usage=usage,
                cost=reported_cost(body.get("usage")),
                service_tier=_text(body.get("service_tier")),
            )
    return Reply(arrived, usage=_message_usage(result))


def _choices(result: LLMResult) -> Iterator[Generation]:
    for batch in result.generations:
        for choice in batch:
            if isinstance(choice, Generation):
                yield choice


def _message(choice: Generation) -> BaseMessage:
    return choice.message if isinstance(choice, ChatGeneration) else AIMessage(choice.text)


def _message_usage(result: LLMResult) -> Usage | None:
    """The usage of the first message that has any, LangChain's form before the raw one.

    A streamed structured answer carries only the provider's raw record.
    """
    for message in map(_message, _choices(result)):
        usage = usage_from_metadata(getattr(message, "usage_metadata", None))
        usage = usage or usage_from_record(message.response_metadata.get("token_usage"))
        if usage is not None:
            return usage
    return None


def reported_cost(usage: object) -> Decimal | None:
    """The dollars that some providers (OpenRouter) report beside the token counts.

    With a key of the caller's own, what the model's provider charges comes on top.
    """
    if not isinstance(usage, Mapping):
        return None
    cost, details = _dollars(usage.get("cost")), usage.get("cost_details")
    if cost is None or not usage.get("is_byok"):
        return cost
    upstream = details.get("upstream_inference_cost") if isinstance(details, Mapping) else None
    charged = _dollars(upstream)
    return None if charged is None else cost + charged


def _dollars(value: object) -> Decimal | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return Decimal(str(value)) if isfinite(value) and value >= 0 else None


def _text(value: object) -> str | None:
    return encodable_text(value) if isinstance(value, str) and value else None


def usage_from_metadata(usage: object) -> Usage | None:
    """The token counts in LangChain's `usage_metadata`, or None where it has none.

    Under a service tier the details of cache and reasoning carry the tier's name as a prefix. What
    was written to the cache is given as one number, by how long it is kept, or both ways.
    """
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("input_token_details")
    return _complete(
        usage,
        sent=_count(usage, "input_tokens"),
        cached=_detail(inputs, "cache_read"),
        reasoning=_detail(usage.get("output_token_details"), "reasoning"),
        written=max(_detail(inputs, "cache_creation"), _detail(inputs, *_CACHE_WRITES)),
        written_1h=_detail(inputs, _ONE_HOUR_WRITES),
    )


def usage_from_record(usage: object) -> Usage | None:
    """The token counts in a provider's own `usage` object, or None where it has none.

    Anthropic's `input_tokens` leave out what was read from the cache or written to it.
    """
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    outputs = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    kept = usage.get("cache_creation")
    read = _count(usage, "cache_read_input_tokens") or 0
    written = max(_count(usage, "cache_creation_input_tokens") or 0, _detail(kept, *_CACHE_WRITES))
    sent = _count(usage, "prompt_tokens")
    if sent is None and (sent := _count(usage, "input_tokens")) is not None:
        sent += read + written
    return _complete(
        usage,
        sent=sent,
        cached=read or _detail(inputs, "cached_tokens"),
        reasoning=_detail(outputs, "reasoning_tokens"),
        written=written or _detail(inputs, "cache_write_tokens"),
        written_1h=_detail(kept, _ONE_HOUR_WRITES),
    )


def _complete(
    usage: Mapping[object, object],
    *,
    sent: int | None,
    cached: int,
    reasoning: int,
    written: int,
    written_1h: int,
) -> Usage | None:
    """The counts with their details, or None when one is missing or both are zero.

    No request is free of prompt tokens: servers that do not count report zeros. Cached input or
    reasoning was counted apart from its whole, and is added, where it is larger than the whole;
    cached input also where the total exceeds both counts by just that. What else the total holds
    beyond both is output.
    """
    received = _count(usage, "completion_tokens", "output_tokens")
    total = _count(usage, "total_tokens") or 0
    if sent is None or (received is None and total <= sent):
        return None
    given = received or 0
    if cached + written > sent or total - sent - given == cached + written:
        sent += cached + written
    if reasoning > given:
        given += reasoning
    given = max(given, total - sent)
    return Usage(sent, given, cached, reasoning, written, written_1h) if sent + given else None


def _count(usage: Mapping[object, object], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _detail(details: object, *names: str) -> int:
    """The sum of the counts of these names, with any prefix."""
    if not isinstance(details, Mapping):
        return 0
    ends = tuple(f"_{name}" for name in names)
    keys = [key for key in details if key in names or str(key).endswith(ends)]
    return sum(_count(details, key) or 0 for key in keys)


def is_cumulative(parts: Sequence[Usage]) -> bool:
    """Whether each part of a stream counts the whole answer so far, as some servers do.

    A prompt is counted once, so parts that both count it do not add up.
    """
    return sum(part.input_tokens > 0 for part in parts) > 1


def streamed_usage(parts: Sequence[Usage]) -> Usage | None:
    """The usage of a stream from that of its parts, or None when no part reported any."""
    if not parts:
        return None
    if not is_cumulative(parts):
        return sum(parts, NO_TOKENS)
    return Usage(*map(max, zip(*map(astuple, parts), strict=True)))


def estimated_usage(prompts: Iterable[str], answer: str) -> Usage:
    """A guess from text alone: one token for each three bytes of UTF-8, rounded up.

    It needs no tokenizer and therefore no download. Hidden reasoning leaves no text, so the
    guess can be far too low for a model that thinks.
    """

    def tokens(text: str) -> int:
        return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)

    return Usage(tokens("".join(prompts)), tokens(answer))
