"""Ways of asking a model that a caller may hand to a graph: each makes one from a server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from typing import Any

import pytest
from asking_desk import client
from billing_server import BillingServer
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from costada.models.retries import with_visible_requests
from costada.models.retry_policy import RetryPolicy


def through(how: Callable[..., Any], **options: Any) -> Callable[[BillingServer], Any]:
    """Return a way that hands the client to a function of it, the prompt and the config."""

    def way(server: BillingServer) -> Any:
        model = client(server, **options)
        return RunnableLambda(lambda prompt, config: how(model, prompt, config))

    return way


def plain(**options: Any) -> Callable[[BillingServer], Any]:
    return lambda server: client(server, **options)


def structured(schema: Any, *, options: Any = None, **how: Any) -> Callable[[BillingServer], Any]:
    return lambda server: (
        client(server, **(options or {})).with_structured_output(schema, **how)
        | RunnableLambda(lambda found: AIMessage(str(found)))
    )


def streamed(model: Any, prompt: Any, config: Any) -> Any:
    return reduce(add, model.stream(prompt, config))


def streamed_asynchronously(model: Any, prompt: Any, config: Any) -> Any:
    async def read() -> Any:
        return reduce(add, [chunk async for chunk in model.astream(prompt, config)])

    return asyncio.run(read())


def left_early(model: Any, prompt: Any, config: Any) -> Any:
    return next(model.stream(prompt, config))


def cancelled(model: Any, prompt: Any, config: Any) -> Any:
    async def give_up_soon() -> Any:
        async with asyncio.timeout(0.2):
            return await model.ainvoke(prompt, config)

    return asyncio.run(give_up_soon())


def in_other_threads(model: Any, prompt: Any, config: Any) -> Any:
    with ThreadPoolExecutor() as pool:
        return pool.submit(model.invoke, prompt).result()


def asked_twice(model: Any, prompt: Any, config: Any) -> Any:
    return [model.invoke(prompt, config) for _ in range(2)][-1]


def agent_loop(model: Any, prompt: Any, config: Any) -> Any:
    agents = pytest.importorskip("langchain.agents", reason="langchain is not installed")

    def shout(text: str) -> str:
        """Return the text in capitals."""
        return text.upper()

    agent = agents.create_agent(model, [shout])
    return agent.invoke({"messages": prompt}, config)["messages"][-1]


def first_then_second(server: BillingServer) -> Any:
    return client(server).with_fallbacks([client(server, model="second")])


def retried(server: BillingServer) -> Any:
    return client(server).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)


def quietly(**options: Any) -> Callable[[BillingServer], Any]:
    return lambda server: with_visible_requests(
        client(server, **options), RetryPolicy(retry_wait=1e-9)
    )
