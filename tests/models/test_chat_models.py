import asyncio
import subprocess
import sys
from typing import Any

import pytest
from billing_server import BillingServer
from langchain_core.language_models import BaseChatModel
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from needed_plugins import needs_plugin

from costada.models.chat_models import chat_model
from costada.models.runnable_tree import underlying_models

LANGCHAIN_IS_MISSING = "langchain is not installed: pip install 'costada[providers]'"

PROMPT = "twelve bytes"
_LIVE = {"client", "async_client", "root_client", "root_async_client"}


def openai_client(model: Any) -> ChatOpenAI:
    (client,) = underlying_models(model)
    assert isinstance(client, ChatOpenAI)
    return client


def test_a_request_carries_the_settings(server: BillingServer):
    model = chat_model("openai:z-ai/glm-5:free", base_url=server.url, temperature=0.2, max_tokens=9)
    model.invoke(PROMPT)
    (request,) = server.requests
    assert request["model"] == "z-ai/glm-5:free"
    assert (request["temperature"], request["max_completion_tokens"]) == (0.2, 9)


def test_the_defaults_are_those_of_the_experiments(server: BillingServer):
    client = openai_client(chat_model("openai:glm-5", base_url=server.url))
    assert (client.temperature, client.max_tokens, client.request_timeout) == (0.7, 32_000, 600)
    assert (client.max_retries, client.stream_usage, client.use_responses_api) == (0, True, False)


def test_one_model_serves_several_event_loops(server: BillingServer):
    server.keeps_alive = True
    model = chat_model("openai:glm-5", base_url=server.url, max_attempts=1)
    answers = [asyncio.run(model.ainvoke(PROMPT)).text for _ in range(3)]
    assert answers == ["hello"] * 3
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "sk-of-the-user"),
        ({"base_url": "http://127.0.0.1:9/v1", "api_key_variable": "ROUTER_KEY"}, "sk-of-router"),
    ],
)
def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, settings, key: str):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("ROUTER_KEY", "sk-of-router")
    model = chat_model("openai:gpt-5.4", **settings)
    client: Any = openai_client(model)
    assert client.openai_api_key.get_secret_value() == key
    assert "sk-of" not in f"{model!r} {client!r} {client} {client.model_dump_json(exclude=_LIVE)}"


def test_a_local_server_needs_no_key(server: BillingServer):
    key: Any = openai_client(chat_model("openai:glm-5", base_url=server.url)).openai_api_key
    assert key.get_secret_value() == "not-needed"


def test_a_server_named_by_the_environment_is_used(
    server: BillingServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert chat_model("openai:glm-5").invoke(PROMPT).text == "hello"


@pytest.mark.parametrize(
    ("model_id", "variable"),
    [("openai:gpt-5.4", "OPENAI_API_KEY"), ("anthropic:claude-opus-4-7", "ANTHROPIC_API_KEY")],
)
def test_a_missing_key_is_named_before_any_call(
    monkeypatch: pytest.MonkeyPatch, model_id: str, variable: str
):
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ValueError, match=f"environment variable {variable} must hold the API key"):
        chat_model(model_id)


def test_another_provider_is_built_by_langchain(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("langchain", reason=LANGCHAIN_IS_MISSING)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://example.org")
    monkeypatch.setenv("OPENAI_API_VERSION", "2026-01-01")
    (client,) = underlying_models(chat_model("azure_openai:my-deployment", max_tokens=9))
    assert isinstance(client, AzureChatOpenAI)
    assert (client.max_tokens, client.temperature, client.max_retries) == (9, 0.7, 0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("langchain", reason=LANGCHAIN_IS_MISSING)
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-of-the-user")
    with pytest.raises(ValueError, match=r"pip install .*langchain-mistralai"):
        chat_model("mistralai:mistral-large-latest")


@pytest.mark.parametrize(
    ("model_id", "better"),
    [
        ("gpt-5.4", "openai:gpt-5.4"),
        ("opnai:gpt-5.4", "openai:gpt-5.4"),
        ("OpenAI:gpt-5.4", "openai:gpt-5.4"),
        ("antropic:claude", "anthropic:claude"),
        pytest.param("offlne", "offline", marks=needs_plugin("offline")),
        pytest.param("Offline", "offline", marks=needs_plugin("offline")),
        pytest.param("offline:7", "offline", marks=needs_plugin("offline")),
        ("openai:", "openai:NAME"),
        ("openai", "openai:NAME"),
        ("", "openai:NAME"),
        (":gpt-5.4", "openai:gpt-5.4"),
    ],
)
def test_an_unknown_id_is_answered_with_a_better_one(model_id: str, better: str):
    with pytest.raises(ValueError, match=f"got '{model_id}': did you mean '{better}'"):
        chat_model(model_id)


def test_an_id_that_is_not_a_string_is_refused():
    with pytest.raises(ValueError, match=r"model id must be .*, got 5$"):
        chat_model(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"temperature": -0.1}, "temperature must be >= 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be >= 0, got nan"),
        ({"max_tokens": 0}, "max_tokens must be >= 1, got 0"),
        ({"timeout": 0}, "timeout must be > 0 seconds, got 0"),
        ({"max_attempts": 0}, "max_attempts must be >= 1, got 0"),
        ({"retry_wait": -1}, "retry_wait must be >= 0, got -1"),
        ({"temperature": "0.5"}, "temperature must be >= 0, got '0.5'"),
        ({"timeout": "60"}, "timeout must be > 0 seconds, got '60'"),
        ({"max_tokens": True}, "max_tokens must be >= 1, got True"),
    ],
)
def test_a_setting_out_of_range_is_refused(setting: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        chat_model("openai:stand-in", **setting)


@needs_plugin("offline")
def test_the_offline_model_needs_neither_key_nor_server():
    assert isinstance(chat_model("offline", seed=3), BaseChatModel)


@pytest.mark.process
def test_importing_the_room_loads_no_provider():
    modules = "chat_models metering prices asking runnable_tree"
    imports = "; ".join(f"import costada.models.{name}" for name in modules.split())
    heavy = "{'openai', 'langchain_openai', 'genai_prices', 'langchain', 'numpy'}"
    code = f"import sys; {imports}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
