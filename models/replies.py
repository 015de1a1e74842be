"""What a provider's reply says: text, token counts, cost and origin."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from math import isfinite
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

_BYTES_PER_TOKEN = 3
_WRITTEN_FOR_AN_HOUR = "ephemeral_1h_input_tokens"
_CACHE_WRITES = ("ephemeral_5m_input_tokens", _WRITTEN_FOR_AN_HOUR)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens billed for one call (T_in and T_out, App. D.1).

    Attributes:
        input_tokens: Prompt tokens, those read from or written to a cache included.
        output_tokens: Answer tokens, the reasoning ones included.
        cached_tokens: The part of the input that was read from the provider's prompt cache.
        reasoning_tokens: The part of the output that the model thought and did not show.
        cache_write_tokens: The part of the input that was written to the provider's prompt cache.
        cache_write_1h_tokens: The part of what was written that is kept for an hour.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        """Return the counts of two parts of one answer together."""
        return TokenCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


NO_TOKENS = TokenCounts(0, 0)


def counts_from_metadata(usage: object) -> TokenCounts | None:
    """Return the counts in LangChain's `usage_metadata`, or None when it tells nothing.

    Under a service tier the details of cache and reasoning carry the tier's name as a prefix. What
    was written to the cache is told in one number, by how long it is kept, or both ways.
    """
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("input_token_details")
    details = replace(
        NO_TOKENS,
        cached_tokens=_detail(inputs, "cache_read"),
        reasoning_tokens=_detail(usage.get("output_token_details"), "reasoning"),
        cache_write_tokens=max(_detail(inputs, "cache_creation"), _detail(inputs, *_CACHE_WRITES)),
        cache_write_1h_tokens=_detail(inputs, _WRITTEN_FOR_AN_HOUR),
    )
    return _complete(usage, _count(usage, "input_tokens"), details)


def counts_from_record(usage: object) -> TokenCounts | None:
    """Return the counts in a provider's own `usage` object, or None when it tells nothing.

    Anthropic's `input_tokens` leave out what was read from the cache or written to it.
    """
    if not isinstance(usage, Mapping):
        return None
    inputs = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    outputs = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    kept = usage.get("cache_creation")
    read = _count(usage, "cache_read_input_tokens") or 0
    written = max(_count(usage, "cache_creation_input_tokens") or 0, _detail(kept, *_CACHE_WRITES))
    details = replace(
        NO_TOKENS,
        cached_tokens=read or _detail(inputs, "cached_tokens"),
        reasoning_tokens=_detail(outputs, "reasoning_tokens"),
        cache_write_tokens=written or _detail(inputs, "cache_write_tokens"),
        cache_write_1h_tokens=_detail(kept, _WRITTEN_FOR_AN_HOUR),
    )
    sent = _count(usage, "prompt_tokens")
    if sent is None and (sent := _count(usage, "input_tokens")) is not None:
        sent += read + written
    return _complete(usage, sent, details)


def repeats(parts: Sequence[TokenCounts]) -> bool:
    """Return whether each part of a stream counts the whole answer so far, as some servers do.

    A prompt is counted once, so parts that both count it do not add up.
    """
    return sum(part.input_tokens > 0 for part in parts) > 1


def streamed_counts(parts: Sequence[TokenCounts]) -> TokenCounts | None:
    """Return the counts of a stream from those of its parts, or None when no part told any."""
    if not parts:
        return None
    if not repeats(parts):
        return sum(parts, NO_TOKENS)
    return TokenCounts(*map(max, zip(*map(astuple, parts), strict=True)))


def estimate_counts(prompts: Iterable[str], answer: str) -> TokenCounts:
    """Return a guess from text alone: one token for each three bytes of UTF-8, rounded up.

    It needs no tokenizer and therefore no download. Hidden reasoning leaves no text, so the
    guess can be far too low for a model that thinks.
    """
    return TokenCounts(_estimate("".join(prompts)), _estimate(answer))


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _complete(
    usage: Mapping[object, object], sent: int | None, details: TokenCounts
) -> TokenCounts | None:
    """Return the counts with their details, or None when one is missing or both are zero.

    No request is free of prompt tokens: servers that do not count report zeros. Cached input or
    reasoning was counted apart from its whole, and is added, where it is larger than the whole;
    cached input also where the total exceeds both counts by just that. What else the total holds
    beyond both is output.
    """
    received = _count(usage, "completion_tokens", "output_tokens")
    total = _count(usage, "total_tokens") or 0
    if sent is None or (received is None and total <= sent):
        return None
    given, cached = received or 0, details.cached_tokens + details.cache_write_tokens
    if cached > sent or total - sent - given == cached:
        sent += cached
    if details.reasoning_tokens > given:
        given += details.reasoning_tokens
    counts = replace(details, input_tokens=sent, output_tokens=max(given, total - sent))
    return counts if counts.input_tokens + counts.output_tokens else None


def _count(usage: Mapping[object, object], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _detail(details: object, *names: str) -> int:
    """Return the sum of the counts of these names, with any prefix."""
    if not isinstance(details, Mapping):
        return 0
    ends = tuple(f"_{name}" for name in names)
    keys = [key for key in details if key in names or str(key).endswith(ends)]
    return sum(_count(details, key) or 0 for key in keys)


WHOLE = "\x1e"
"""Stands between the words of a kept message and the whole of it; JSON never holds it."""

_KEPT = {"content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata"}


def encodable_text(text: str) -> str:
    """Return a text with no half of a surrogate pair in it.

    JSON can bring halves, and no request, file or database takes them. Two that belong together,
    as the parts of a stream can bring them, become the character they stand for, and one alone a
    replacement character.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encodable_message(message: AIMessage) -> AIMessage:
    """Return an answer as it is read: all that it says can be encoded."""
    texts = {name: _encodable(getattr(message, name)) for name in (*_KEPT, "id", "name")}
    return message.model_copy(update=texts)


def answer_text(message: BaseMessage) -> str:
    """Return the words of a message; reasoning, images and tool calls are left out.

    Content may be a string or a list of strings and typed blocks, as providers differ.
    """
    if isinstance(message.content, str):
        return message.content
    return "".join(_block_text(block) for block in message.content)


def text_with_tool_calls(message: BaseMessage) -> str:
    """Return the words of a message and below them the tools that it calls, for people to read."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    wrong = message.invalid_tool_calls if isinstance(message, AIMessage) else []
    told = [_call_text(call["name"], call["args"]) for call in calls]
    told += [_call_text(call["name"], {"": call["args"]}) for call in wrong]
    return "\n\n".join(part for part in (answer_text(message), *told) if part)


def message_to_text(message: BaseMessage) -> str:
    """Return the text that a message is kept as: its words, and all of it where it calls tools.

    `message_from_text` makes the message of it again, and `visible_text` what a person should see.
    """
    words = answer_text(message)
    is_plain = not isinstance(message, AIMessage) or not calls_tools(message)
    if is_plain and WHOLE not in words:
        return words
    whole = message.model_dump(mode="json", include=_KEPT, fallback=str)
    return f"{text_with_tool_calls(message)}{WHOLE}{json.dumps(whole)}"


def message_from_text(text: str) -> AIMessage:
    """Return the message that was kept as a text, without its token counts."""
    _, is_whole, whole = text.rpartition(WHOLE)
    return AIMessage.model_validate(json.loads(whole)) if is_whole else AIMessage(text)


def visible_text(text: str) -> str:
    """Return the part of a kept message that is for people: its words and the tools it calls."""
    words, is_whole, _ = text.rpartition(WHOLE)
    return words if is_whole else text


def calls_tools(message: AIMessage) -> bool:
    """Return whether a message asks for tools, be it in a form that can be read or not."""
    return bool(message.tool_calls or message.invalid_tool_calls)


def _encodable(value: Any) -> Any:
    """Return a value with no half of a surrogate pair in the texts that it holds."""
    if isinstance(value, str):
        return encodable_text(value)
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return [_encodable(each) for each in value] if isinstance(value, list | tuple) else value


def _call_text(name: object, arguments: Mapping[str, object]) -> str:
    lines = [f"[tool call] {name}"]
    for field, value in arguments.items():
        said = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"{field}: {said}" if field else said)
    return "\n".join(lines)


def _block_text(block: str | dict[str, object]) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as far as it arrived.

    Attributes:
        answer: Text of the first choice, as `message_to_text` makes it of one that calls tools.
        finish_reason: Why the model stopped, in the provider's words.
        provider_id: The provider's id of the response.
        counts: Billed tokens of all choices together, or None if the provider told none.
        is_cache_hit: A LangChain cache answered instead of a provider.
        cost: What the provider says it charged in dollars, if it does.
    """

    answer: str
    finish_reason: str | None = None
    provider_id: str | None = None
    counts: TokenCounts | None = None
    is_cache_hit: bool = False
    cost: Decimal | None = None

    @property
    def is_counted(self) -> bool:
        """Whether the provider told all counts: an answer that says something has tokens."""
        return self.counts is not None and bool(self.counts.output_tokens or not self.answer)


def read_reply(result: LLMResult) -> Reply:
    """Return what one successful request brought.

    Each of several choices repeats the counts of the whole response: they are read once.
    """
    choices = list(_choices(result))
    message = _message(choices[0]) if choices else AIMessage("")
    message = encodable_message(message) if isinstance(message, AIMessage) else message
    facts = {**(result.llm_output or {}), **message.response_metadata}
    for choice in choices[:1]:
        facts |= choice.generation_info or {}
    return Reply(
        answer=message_to_text(message),
        finish_reason=_text(facts.get("finish_reason") or facts.get("stop_reason")),
        provider_id=_text(facts.get("id")),
        counts=_reported_counts(result),
        is_cache_hit=_is_cache_hit(message),
        cost=_reported_cost(facts.get("token_usage")),
    )


def read_failure(result: object, arrived: str) -> Reply:
    """Return what is known of an answer behind a failed request.

    A provider bills an answer that LangChain then fails to parse. Its body, kept with the error,
    tells the price of it.

    Args:
        result: The record that came with the error, if any.
        arrived: The text that had arrived.
    """
    if not isinstance(result, LLMResult):
        return Reply(arrived)
    for choice in _choices(result):
        body = _message(choice).response_metadata.get("body")
        usage = body.get("usage") if isinstance(body, Mapping) else None
        counts = counts_from_record(usage)
        if isinstance(body, Mapping) and counts is not None and _is_credible(counts, body):
            return Reply(
                arrived,
                provider_id=_text(body.get("id")),
                counts=counts,
                cost=_reported_cost(usage),
            )
    return Reply(arrived, counts=_message_counts(result))


def _is_credible(counts: TokenCounts, body: Mapping[object, object]) -> bool:
    """Return whether a body that holds answers, by either protocol's name, counts their tokens."""
    return bool(counts.output_tokens or not (body.get("choices") or body.get("output")))


def _choices(result: LLMResult) -> Iterator[Generation]:
    for batch in result.generations:
        for choice in batch:
            if isinstance(choice, Generation):
                yield choice


def _message(choice: Generation) -> BaseMessage:
    return choice.message if isinstance(choice, ChatGeneration) else AIMessage(choice.text)


def _reported_counts(result: LLMResult) -> TokenCounts | None:
    counts = _message_counts(result)
    if counts is None and result.llm_output is not None:
        counts = counts_from_record(result.llm_output.get("token_usage"))
    return counts


def _message_counts(result: LLMResult) -> TokenCounts | None:
    """Return the counts of the first message that has any, LangChain's form before the raw one.

    A streamed structured answer carries only the provider's raw record.
    """
    for message in map(_message, _choices(result)):
        counts = counts_from_metadata(getattr(message, "usage_metadata", None))
        counts = counts or counts_from_record(message.response_metadata.get("token_usage"))
        if counts is not None:
            return counts
    return None


def _reported_cost(usage: object) -> Decimal | None:
    """Return the dollars that some providers (OpenRouter) put beside the token counts.

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


def _is_cache_hit(message: BaseMessage) -> bool:
    """Tell whether LangChain marked the message as cached: it adds a total cost of zero."""
    usage: object = getattr(message, "usage_metadata", None)
    return isinstance(usage, Mapping) and usage.get("total_cost") == 0


def _text(value: object) -> str | None:
    return encodable_text(value) if isinstance(value, str) and value else None
