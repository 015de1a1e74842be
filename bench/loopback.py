"""An OpenAI-compatible server in a process of its own, for benches that need a slow provider.

    with Loopback(constant(0.75)) as server:
        ...  # point a client at server.url
        calls = server.take_calls()

Latencies go to the requests in the order of their arrival, so every run against a new server meets
the same sequence. Answers depend on the prompt and on how often it came before: most hold a working
program for `circle_packing` between 1 and 4 KB, some hold none, and guides get tactics. Connections
are kept alive, as providers do.
"""

import asyncio
import hashlib
import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from math import exp, log
from multiprocessing.connection import Connection
from typing import Any, Self

UNUSABLE = 0.05
"""Share of the answers without a program."""

MAX_HEAD = 2**16
P95 = 1.6448536269514722
"""The 95 % point of the standard normal distribution."""

CIRCLES = """
import numpy as np

# EVOLVE-BLOCK-START
def run_packing():
    k = np.arange(5) * 0.2 + 0.1
    centers = np.vstack([np.column_stack([np.repeat(k, 5), np.tile(k, 5)]), [[0.8, 0.8]]])
    radii = np.append(np.full(25, 0.1 * {scale:.9f}), 0.04 * {scale:.9f})
    return centers, radii, float(radii.sum())


# EVOLVE-BLOCK-END
"""
IDEAS = json.dumps(
    {
        "ideas": [
            {"idea": name, "description": f"Try {name}.", "approach_type": f"layout.{name}"}
            for name in ("rows", "rings", "corners")
        ]
    }
)

Latency = Callable[[], Iterator[float]]
"""Makes the sequence of latencies, in seconds."""

Answer = Callable[[random.Random], str]
"""What the model says, drawn for one request; a function of a module."""


def constant(seconds: float) -> Latency:
    """The same latency for every request."""
    return partial(repeat, seconds)


def log_normal(median: float, p95: float, seed: int = 0) -> Latency:
    """Log-normal latencies with a median and a 95 % point in seconds."""
    return partial(_log_normal, log(median), log(p95 / median) / P95, seed)


def _log_normal(mu: float, sigma: float, seed: int) -> Iterator[float]:
    rng = random.Random(seed)
    while True:
        yield exp(rng.gauss(mu, sigma))


@dataclass(frozen=True)
class Call:
    """When a request arrived and when its answer was sent (`time.monotonic`), and its tokens."""

    began: float
    ended: float
    input_tokens: int
    output_tokens: int


class Loopback:
    """The server; a context manager. `url` is the base URL to give to a client."""

    def __init__(self, latency: Latency, answer: Answer | None = None) -> None:
        self._pipe, other = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        arguments = (other, latency, answer or circles)
        self._process = spawn.Process(target=_serve, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.url = f"http://127.0.0.1:{self._pipe.recv()}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.join()

    def take_calls(self) -> list[Call]:
        """The calls answered since the last time, in the order of their answers."""
        self._pipe.send(None)
        calls: list[Call] = self._pipe.recv()
        return calls


class _Provider:
    """Answers requests and remembers them."""

    def __init__(self, latency: Latency, answer: Answer) -> None:
        self._latencies, self._text = latency(), answer
        self._prompts: Counter[str] = Counter()
        self.calls: list[Call] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                body = json.loads(await reader.readexactly(length))
                answer = await self._answer(body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, body: Any) -> bytes:
        began = time.monotonic()
        seconds, prompt = next(self._latencies), str(body["messages"][-1]["content"])
        self._prompts[prompt] += 1
        draw = hashlib.sha256(f"{self._prompts[prompt]} {prompt}".encode())
        text = IDEAS if "# Output" in prompt else self._text(random.Random(draw.digest()))
        content = answered(body, text, f"answer-{draw.hexdigest()[:16]}")
        await asyncio.sleep(seconds - (time.monotonic() - began))
        usage = content["usage"]
        counts = usage["prompt_tokens"], usage["completion_tokens"]
        self.calls.append(Call(began, time.monotonic(), *counts))
        return json.dumps(content).encode()


def circles(rng: random.Random) -> str:
    """A program that packs circles, at times none."""
    if rng.random() < UNUSABLE:
        return "I would keep the program as it is."
    notes = "".join(f"# note {rng.randrange(10**9)}\n" for _ in range(rng.randrange(40, 200)))
    return f"```python\n{CIRCLES.format(scale=0.5 + 0.5 * rng.random())}{notes}```"


def answered(body: Any, text: str, name: str) -> dict[str, Any]:
    """The body of a chat completion; four characters count as one token."""
    taken = sum(len(str(message["content"])) for message in body["messages"]) // 4
    given = len(text) // 4
    message = {"role": "assistant", "content": text}
    return {
        "id": name,
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": taken,
            "completion_tokens": given,
            "total_tokens": taken + given,
        },
    }


def _serve(pipe: Connection, latency: Latency, answer: Answer) -> None:
    asyncio.run(_serve_forever(pipe, _Provider(latency, answer)))


async def _serve_forever(pipe: Connection, provider: _Provider) -> None:
    server = await asyncio.start_server(
        provider.connected, "127.0.0.1", 0, limit=MAX_HEAD, backlog=256
    )

    def tell() -> None:
        pipe.recv()
        pipe.send(provider.calls)
        provider.calls = []

    asyncio.get_running_loop().add_reader(pipe.fileno(), tell)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
