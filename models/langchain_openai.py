"""All that depends on private names of langchain-core, langchain-openai and the SDKs below them.

Some facts have no public name: the parameters of a request before it leaves, the retries of an SDK
client inside a chat model, and whether an error was raised before a request was sent or while its
response was read. tests/models/test_langchain_openai.py checks each of them; CI runs it with the
lowest and the highest versions that pyproject.toml allows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from inspect import signature
from traceback import walk_tb
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import finalize

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage

from costada.models.connection import CONNECT_SECONDS, KEPT_OPEN_SECONDS
from costada.models.event_loop import close_with_loop, is_paid_loop

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

_CLIENTS = ("root_client", "root_async_client", "client", "async_client")
_ADDRESSES = ("openai_api_base", "base_url", "anthropic_api_url", "endpoint")

_MODEL_FUNCTIONS = frozenset({"_generate", "_agenerate", "_stream", "_astream"})
"""Where a chat model makes its request."""

_REQUEST_WRITERS = frozenset(
    {
        "_build_request",
        "_get_request_payload",
        "_use_responses_api",
        "build_request",
        "encode_request",
        "prepare",
        "prepare_request",
    }
)
"""Functions of LangChain, HTTP clients and SDKs that make a request and do not send it."""

_REQUEST_CALLERS = _MODEL_FUNCTIONS | {
    "_astream_responses",
    "_stream_responses",
    "create",
    "wrapped",
}
"""Functions of langchain-openai, of the OpenAI SDK and here that call one that sends a request."""

_SDK_ENTRY_POINTS = tuple(
    f"{sdk}.{part}." for sdk in ("openai", "anthropic") for part in ("resources", "_utils")
)
"""Modules that check arguments. The SDKs send in `_base_client`; a `parser` reads responses."""

_RESPONSE_READERS = frozenset(
    {
        "_create_chat_result",
        "_construct_lc_result_from_responses_api",
        "_convert_chunk_to_generation_chunk",
    }
)
"""Functions of langchain-openai that read the body of a response."""

_RESPONSE_TAKERS = frozenset(
    {"invoke", "ainvoke", "stream", "astream", "generate_from_stream", "agenerate_from_stream"}
)
"""Functions of langchain-core that take what a chat model returned."""

ERRORS_TELL_ORIGIN = frozenset(
    {
        ("langchain", "chat_models", "openai", "ChatOpenAI"),
        ("langchain", "chat_models", "azure_openai", "AzureChatOpenAI"),
    }
)
"""LangChain ids of the chat models whose tracebacks show whether a request was sent."""


class RequestFacts(NamedTuple):
    """What LangChain passes to the callbacks of a request before it leaves.

    Attributes:
        params: The parameters of the request.
        metadata: Facts about the request, to which callers may add.
        serialized: A description of the chat model.
    """

    params: Mapping[str, Any]
    metadata: Mapping[str, Any]
    serialized: Mapping[str, Any]


def request_facts(model: BaseChatModel, bound: Mapping[str, Any]) -> RequestFacts:
    """What callbacks would get for a request with these bound parameters, without making it."""
    serialized = {"name": model.get_name()}
    params = model._get_invocation_params(**bound)
    return RequestFacts(params, request_metadata(model, bound), serialized)


def request_metadata(model: BaseChatModel, bound: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a request with these bound parameters, without making it."""
    return {**model._get_ls_params(**bound), **(model.metadata or {})}


def messages_of(model: BaseChatModel, given: LanguageModelInput) -> Sequence[BaseMessage]:
    """The messages that a chat model makes of its input."""
    return model._convert_input(given).to_messages()


def is_openai(model: BaseChatModel) -> bool:
    """Whether a chat model speaks OpenAI's protocol through langchain-openai."""
    from langchain_openai import ChatOpenAI

    return isinstance(model, ChatOpenAI)


def client_address(model: BaseChatModel) -> str | None:
    """The address a chat model calls, if known; its client knows what the environment set."""
    addresses = [getattr(getattr(model, "root_client", None), "base_url", None)]
    addresses += [getattr(model, name, None) for name in _ADDRESSES]
    return next((str(address) for address in addresses if address), None)


def http_client(*, trust_env: bool = True) -> Any:
    """A synchronous HTTP client for the OpenAI SDK; nothing but streams of a user needs it."""
    from openai import DefaultHttpxClient

    client = DefaultHttpxClient(trust_env=trust_env, verify=_ssl_context())
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            # httpx leaves the connections of a client that is garbage open. At the end of the
            # process the system closes them.
            finalize(client, cast(Any, transport)._pool.close).atexit = False
    return client


def async_http_client(*, trust_env: bool = True) -> Any:
    """An asynchronous HTTP client for the OpenAI SDK that may be used in any event loop.

    A connection that is kept open belongs to one loop: a request on it in another loop would fail
    after it was billed. In the loop of paid calls connections stay open from call to call, in any
    other a connection is opened for each request.
    """
    from openai import DefaultAsyncHttpxClient

    return _loop_client_class(DefaultAsyncHttpxClient)(trust_env=trust_env)


@cache
def _ssl_context() -> Any:
    """What every client verifies servers with; to read the certificates takes most of its start."""
    from openai import DefaultHttpxClient

    # Of the httpx that the SDK uses; it is not a dependency of ours.
    return import_module(DefaultHttpxClient.__mro__[1].__module__).create_ssl_context()


@cache
def _loop_client_class(sdk_class: Any) -> Any:
    """The class of `async_http_client`, made of that of an SDK when it is first needed."""

    class LoopClient(sdk_class):  # type: ignore[misc]
        serves_any_loop = True

        def __init__(self, *, trust_env: bool) -> None:
            options: dict[str, Any] = {"trust_env": trust_env, "verify": _ssl_context()}
            super().__init__(**options)
            self._options = options
            self._kept_open: tuple[asyncio.AbstractEventLoop, Any] | None = None

        async def send(self, request: Any, **options: Any) -> Any:
            """Send a request on a connection of the current loop."""
            # LangChain has one limit for a whole request, which is long enough for an answer
            limits = request.extensions.get("timeout", {})
            whole = limits.get("connect")
            connect = CONNECT_SECONDS if whole is None else min(whole, CONNECT_SECONDS)
            request.extensions["timeout"] = {**limits, "connect": connect}
            loop = asyncio.get_running_loop()
            if not is_paid_loop(loop):
                request.headers["Connection"] = "close"
                return await super().send(request, **options)
            if self._kept_open is None or self._kept_open[0] is not loop:
                # what a parent process left in here is its own
                self._kept_open = loop, _kept_open_client(self, sdk_class(**self._options))
            return await self._kept_open[1].send(request, **options)

    return LoopClient


def _kept_open_client(owner: object, client: Any) -> Any:
    """A client of the loop of paid calls, closed with that loop or when nobody has its owner."""
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            # Most servers close an idle connection later; what is sent in that moment is lost.
            transport._pool._keepalive_expiry = KEPT_OPEN_SECONDS
    close_with_loop(owner, client.aclose)
    return client


def with_plain_requests(model: BaseChatModel, client: Any = None) -> BaseChatModel:
    """A copy of an OpenAI chat model that spends no time on the types of a request's parts.

    Args:
        model: An OpenAI chat model.
        client: The asynchronous client that it asks with from now on, if not its own.
    """
    client = client or cast("ChatOpenAI", model).root_async_client
    return model.model_copy(
        update={"root_async_client": client, "async_client": _completions_class()(client)}
    )


@cache
def _completions_class() -> Any:
    """The class of a client's completions for `with_plain_requests`."""
    from openai.resources.chat.completions import AsyncCompletions

    known = signature(AsyncCompletions.create).parameters.keys()

    class PlainCompletions(AsyncCompletions):
        async def create(self, **given: Any) -> Any:
            """Send a request.

            The SDK looks up the type of each part of a body, for values that it has to convert.
            Text and numbers stay as they are, so they go by `extra_body`, which it sends as it is.
            """
            # A parameter that the SDK does not know must be refused by it, not sent. What stands in
            # the place of its method, such as a tracer's instrumentation, is to see the messages.
            is_own = _is_of_the_sdk(AsyncCompletions.create)
            if not (is_own and given.keys() <= known and _has_plain_body(given)):
                return await super().create(**given)
            # `messages` and `model` are required, and `extra_body` replaces them in the request.
            options = {name: given[name] for name in _BESIDE_BODY & given.keys()}
            body = {name: given[name] for name in given.keys() - _BESIDE_BODY - {"extra_body"}}
            body |= given.get("extra_body") or {}
            return await super().create(
                **options, model=given["model"], messages=[], extra_body=body
            )

    return PlainCompletions


def _is_of_the_sdk(method: object) -> bool:
    # The exact type: what stands in for a function says that it is one.
    return type(method) is FunctionType and method.__globals__["__name__"].startswith("openai.")


_BESIDE_BODY = frozenset({"extra_headers", "extra_query", "stream", "timeout"})
"""Parameters of a completion that the SDK reads itself."""


def _has_plain_body(given: Mapping[str, Any]) -> bool:
    """Whether the body of a completion's request holds nothing but messages of text and numbers."""
    messages, extra = given.get("messages"), given.get("extra_body")
    return (
        isinstance(given.get("model"), str)
        and isinstance(messages, list)
        and all(isinstance(part, str) for message in messages for part in message.values())
        and (extra is None or isinstance(extra, Mapping))
        and all(
            isinstance(given[name], str | int | float | None)
            for name in given.keys() - _BESIDE_BODY - {"messages", "extra_body"}
        )
    )


def is_safe_in_loop(model: BaseChatModel) -> bool:
    """Whether a model may ask in the loop of paid calls, beside any other loop of its user.

    Clients of the provider packages keep connections open, share them with all models of a process
    and bind them to the loop that uses them first. A class that overrides no more than the
    synchronous path wants to be asked there.
    """
    # `safe_in_loop` has put it there.
    if "_agenerate" in vars(model):
        return True
    kinds = type(model).__mro__
    for ours, theirs in (("_generate", "_agenerate"), ("_stream", "_astream")):
        sync, native = (
            next(kind for kind in kinds if name in vars(kind)) for name in (ours, theirs)
        )
        if native is not BaseChatModel and kinds.index(sync) < kinds.index(native):
            return False
    client = getattr(getattr(model, "root_async_client", None), "_client", None)
    if getattr(client, "serves_any_loop", False):
        return True
    packages = {kind.__module__.partition(".")[0] for kind in kinds}
    return not any(each.startswith("langchain_") for each in packages - {"langchain_core"})


def safe_in_loop(model: BaseChatModel) -> BaseChatModel:
    """A model that asks like the given one and may do so in the loop of paid calls.

    An OpenAI chat model without HTTP clients of its user gets one of ours. Any other is asked in a
    thread, by the path that LangChain has for models without an asynchronous one.
    """
    if is_safe_in_loop(model):
        return model
    if _has_default_clients(model):
        client = cast("ChatOpenAI", model).root_async_client.with_options(
            http_client=async_http_client()
        )
        return with_plain_requests(model, client)
    copied = model.model_copy()

    async def generate(messages: Any, *given: Any, **options: Any) -> Any:
        return await BaseChatModel._agenerate(copied, messages, *given, **options)

    async def stream(messages: Any, *given: Any, **options: Any) -> Any:
        async for part in BaseChatModel._astream(copied, messages, *given, **options):
            yield part

    vars(copied).update(_agenerate=generate, _astream=stream)
    if type(model).__module__.startswith("langchain_anthropic.") and not _has_proxy(model):
        vars(copied)[_OWN_CLIENT] = _anthropic_client(copied)
    return copied


_OWN_CLIENT = "_costada_client"
"""Where a model that asks in a thread has a client of its SDK for the bodies of others."""


def _has_proxy(model: BaseChatModel) -> bool:
    return bool(getattr(model, "anthropic_proxy", None))


def _anthropic_client(model: BaseChatModel) -> Any:
    """A client like that of a ChatAnthropic that may be used in any event loop."""
    sdk_class = import_module("anthropic").DefaultAsyncHttpxClient
    http_client = _loop_client_class(sdk_class)(trust_env=True)
    return cast(Any, model)._async_client.with_options(http_client=http_client)


def _has_default_clients(model: BaseChatModel) -> bool:
    own = ("http_client", "http_async_client", "openai_proxy")
    return (
        type(model).__module__.startswith("langchain_openai.")
        and is_openai(model)
        and getattr(model, "root_async_client", None) is not None
        and not any(getattr(model, name, None) for name in own)
    )


def with_address(
    model: BaseChatModel, base_url: str, headers: Mapping[str, str], metadata: Mapping[str, Any]
) -> BaseChatModel:
    """A copy of an OpenAI chat model that calls another address, bypassing any proxy."""
    chat = cast("ChatOpenAI", model)
    options: dict[str, Any] = {"base_url": base_url, "default_headers": headers}
    client = chat.root_client.with_options(http_client=http_client(trust_env=False), **options)
    async_client = chat.root_async_client.with_options(
        http_client=async_http_client(trust_env=False), **options
    )
    addressed = chat.model_copy(
        update={
            "root_client": client,
            "client": client.chat.completions,
            "metadata": {**(chat.metadata or {}), **metadata},
        }
    )
    return with_plain_requests(addressed, async_client)


_WHOLE_RESPONSES = {"X-Stainless-Raw-Response": "stream"}
"""The header by which a client of the SDK returns a response as it came, its body still to read."""


def sending_sdk(model: BaseChatModel) -> str | None:
    """The SDK, "openai" or "anthropic", with whose client `send_body` sends; `None`: it cannot.

    It cannot where the clients are those of a user, or a class of a user makes the requests.
    """
    if _OWN_CLIENT in vars(model):
        return "anthropic"
    is_own = type(model).__module__.startswith("langchain_openai.")
    is_in_thread = "_agenerate" in vars(model)  # `safe_in_loop` has put it there
    return "openai" if is_own and not is_in_thread and is_safe_in_loop(model) else None


async def send_body(
    model: BaseChatModel, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> Any:
    """Send a request that a chat model did not write to its provider, once.

    Args:
        model: One that has a `sending_sdk`.
        path: What follows the address of the provider.
        body: The body of the request.
        headers: Headers beside those that each request of the client has.

    Returns:
        The response, of httpx, with its body still to read; it has to be closed.

    Raises:
        Exception: Any of the SDK's, as where the model itself asks.
    """
    client = vars(model).get(_OWN_CLIENT) or cast(Any, model).root_async_client
    response: Any = await client.post(
        path,
        cast_to=object,
        body=body,
        options={"headers": {**headers, **_WHOLE_RESPONSES}, "max_retries": 0},
    )
    return response.http_response


def without_key(text: str, model: BaseChatModel) -> str:
    """A text in which the key of a chat model is left out: providers quote the one they refuse."""
    held = [getattr(model, name, None) for name in _CLIENTS] + [vars(model).get(_OWN_CLIENT)]
    for key in {getattr(each, "api_key", None) for each in held}:
        if isinstance(key, str) and key:
            text = text.replace(key, "<key>")
    return text


_READ_CHUNK = "_convert_chunk_to_generation_chunk"
"""The method that makes a message of one event of a stream, and drops the response's id."""


def loses_response_ids(model: BaseChatModel) -> bool:
    """Whether the streams of a model do not say which response of the provider they are."""
    return hasattr(type(model), _READ_CHUNK) and _READ_CHUNK not in vars(model)


def with_response_ids(model: BaseChatModel) -> BaseChatModel:
    """A copy of an OpenAI chat model whose streamed messages have the id of their response.

    LangChain keeps the id of a whole response and gives the parts of a stream one of its own. The
    copy keeps its class, by which LangChain and the meter know it.
    """
    copied = model.model_copy()
    read: Any = getattr(copied, _READ_CHUNK)

    def read_with_id(chunk: Mapping[str, Any], *further: Any) -> Any:
        part = read(chunk, *further)
        found = chunk.get("id") or (chunk.get("chunk") or {}).get("id")
        if part is not None and found:
            part.message.id = found
        return part

    vars(copied)[_READ_CHUNK] = read_with_id
    return copied


def client_retries(model: BaseChatModel) -> int | None:
    """How often a model's SDK clients send a failed request again; `None` if none says."""
    held = [getattr(model, name, None) for name in (*_CLIENTS, *_lazy_clients(model))]
    clients = held + [getattr(each, "_client", None) for each in held]
    stated = [getattr(client, "max_retries", None) for client in clients]
    return max((number for number in stated if isinstance(number, int)), default=None)


def without_client_retries(model: BaseChatModel) -> BaseChatModel:
    """A copy whose SDK clients do not retry, or the model itself where no client says so."""
    clients = {}
    for name in _CLIENTS:
        held: Any = getattr(model, name, None)
        client: Any = getattr(held, "_client", None)
        if hasattr(held, "with_options"):
            clients[name] = held.with_options(max_retries=0)
        elif hasattr(client, "with_options"):  # a part of a client, such as its completions
            clients[name] = type(held)(client.with_options(max_retries=0))
    copied = model.model_copy(update={**clients, "max_retries": 0})
    for name in _lazy_clients(model):
        vars(copied).pop(name, None)  # built again with no retries when it is next needed
    return model if client_retries(copied) is None else copied


def _lazy_clients(model: BaseChatModel) -> list[str]:
    """The properties in which some classes, such as Anthropic's, build their clients."""
    members = [member for kind in type(model).__mro__ for member in vars(kind).items()]
    return [
        name for name, value in members if isinstance(value, cached_property) and "client" in name
    ]


def failed_before_sending(error: BaseException) -> bool:
    """Whether a request could not be made, for instance because of an unknown parameter."""
    frames = traceback_frames(error)
    # Before the modules: `_base_client` of the SDKs writes requests as well as it sends them.
    if any(function in _REQUEST_WRITERS for _, function in frames) or _is_unknown_parameter(error):
        return True
    if any(module.endswith("._base_client") or name == "parser" for module, name in frames):
        return False
    return any(module.startswith(_SDK_ENTRY_POINTS) for module, _ in frames)


def _is_unknown_parameter(error: BaseException) -> bool:
    """Whether a method that sends a request could not be called: Python names only its caller."""
    module, function = (traceback_frames(error) or [("", "")])[-1]
    is_of_sdk = module.startswith(("langchain_openai.", "openai.", __name__))
    is_of_call = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
    return is_of_sdk and is_of_call and function in _REQUEST_CALLERS


def failed_reading_response(error: BaseException) -> bool:
    """Whether an error was raised while the body of a response was read.

    LangChain and the OpenAI SDK raise built-in types for a body they cannot read, so only the
    place they come from tells them from a programming error.
    """
    if failed_before_sending(error):
        return False
    frames = traceback_frames(error)
    for module, function in frames:
        if module.startswith("langchain_openai.") and function in _RESPONSE_READERS:
            return True
        if module.startswith("openai.") and isinstance(error, ValueError):
            return True
    module, function = frames[-1] if frames else ("", "")
    return module == BaseChatModel.__module__ and function in _RESPONSE_TAKERS


def raised_by_model_code(error: BaseException) -> bool:
    """Whether a chat model raised an error itself, in the function that makes its request."""
    frames = traceback_frames(error)
    return bool(frames) and frames[-1][1] in _MODEL_FUNCTIONS


def traceback_frames(error: BaseException) -> list[tuple[str, str]]:
    """Module and function of each frame that an error passed through, outermost first."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return [(str(frame.f_globals.get("__name__")), frame.f_code.co_name) for frame in frames]
