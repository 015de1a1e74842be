"""All that depends on private names of langchain-core, langchain-openai and the SDKs below them.

Some facts have no public name: the parameters of a request before it leaves, the retries of an SDK
client inside a chat model, and whether an error was raised before a request was sent or while its
response was read. tests/models/test_langchain_openai.py checks each of them; CI runs it with the
lowest and the highest versions that pyproject.toml allows.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import finalize

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables.retry import RunnableRetry
from tenacity import Retrying

from costada.models.deadline import KEPT_OPEN_SECONDS, ConnectionMaker

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

_REQUEST_CALLERS = _MODEL_FUNCTIONS | {"_astream_responses", "_stream_responses", "wrapped"}
"""Functions of langchain-openai and of the OpenAI SDK that call a method which sends a request."""

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
    metadata = {**model._get_ls_params(**bound), **(model.metadata or {})}
    serialized = {"name": model.get_name()}
    return RequestFacts(model._get_invocation_params(**bound), metadata, serialized)


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
    """An HTTP client for the OpenAI SDK, whose connections stay open from call to call.

    The deadline of a call shuts down the connection that it uses. An idle connection is closed
    before most servers close it: what is sent in that very moment is lost.
    """
    from openai import DefaultHttpxClient

    client: Any = DefaultHttpxClient(trust_env=trust_env)
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            pool = transport._pool
            pool._network_backend = ConnectionMaker(pool._network_backend)
            pool._keepalive_expiry = KEPT_OPEN_SECONDS
            finalize(client, pool.close).atexit = False
    return client


def async_http_client(*, trust_env: bool = True) -> Any:
    """An asynchronous HTTP client for the OpenAI SDK that opens a connection for each request.

    A connection kept open belongs to one event loop: the next `asyncio.run` would fail on it after
    the request was billed.
    """
    from openai import DefaultAsyncHttpxClient

    return DefaultAsyncHttpxClient(trust_env=trust_env, headers={"Connection": "close"})


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
    return chat.model_copy(
        update={
            "root_client": client,
            "client": client.chat.completions,
            "root_async_client": async_client,
            "async_client": async_client.chat.completions,
            "metadata": {**(chat.metadata or {}), **metadata},
        }
    )


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
        vars(copied).pop(name, None)
    return model if client_retries(copied) is None else copied


def _lazy_clients(model: BaseChatModel) -> list[str]:
    """The properties in which some classes, such as Anthropic's, build their clients."""
    members = [member for kind in type(model).__mro__ for member in vars(kind).items()]
    return [
        name for name, value in members if isinstance(value, cached_property) and "client" in name
    ]


class RetryWithOptions(RunnableRetry[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """LangChain's retry with any options of tenacity."""

    def options(self) -> dict[str, Any]:
        """Arguments of a retry by tenacity."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """Wait between two requests of a synchronous call."""
        raise NotImplementedError

    @property
    def _kwargs_retrying(self) -> dict[str, Any]:
        return self.options()

    def _sync_retrying(self, **kwargs: Any) -> Retrying:
        return Retrying(**self.options(), sleep=self.sleep, **kwargs)


def failed_before_sending(error: BaseException) -> bool:
    """Whether a request could not be made, for instance because of an unknown parameter."""
    frames = traceback_frames(error)
    if any(function in _REQUEST_WRITERS for _, function in frames) or _is_unknown_parameter(error):
        return True
    if any(module.endswith("._base_client") or name == "parser" for module, name in frames):
        return False
    return any(module.startswith(_SDK_ENTRY_POINTS) for module, _ in frames)


def _is_unknown_parameter(error: BaseException) -> bool:
    """Whether a method that sends a request could not be called: Python names only its caller."""
    module, function = (traceback_frames(error) or [("", "")])[-1]
    is_of_sdk = module.startswith(("langchain_openai.", "openai."))
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
