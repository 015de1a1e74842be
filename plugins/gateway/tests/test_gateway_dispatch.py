"""Which requests a gateway sends, and which it answers from its journal."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from costada.plugins.gateway.dispatch import Dispatcher, InflightRequest, Request
from costada.plugins.gateway.response_journal import Journal, RequestKey, RequestState

KEY = RequestKey("run/1/generation/1", "hash")
OTHER = KEY._replace(request_hash="other")
OTHER_CALL = KEY._replace(call="run/2/generation/1")
REQUEST = Request("POST", "/chat/completions", (), b"{}")


class Provider:
    """Answers 1, 2, 3 ... with the scripted states, then successfully; at once unless closed."""

    def __init__(self, *states: RequestState):
        self.states = list(states)
        self.num_sent = 0
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def send(self, request: Request, inflight: InflightRequest) -> RequestState:
        self.num_sent += 1
        number, state = self.num_sent, self.states.pop(0) if self.states else RequestState.ANSWERED
        await self.is_open.wait()
        if state in (RequestState.ANSWERED, RequestState.REFUSED):
            inflight.begin_response(200 if state is RequestState.ANSWERED else 500, ())
            inflight.add(str(number).encode())
        return state


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "gateway.sqlite")) as opened:
        yield opened


async def answer(dispatcher: Dispatcher, execution: str, key: RequestKey = KEY) -> str:
    """What an execution receives, as number or state."""
    return await read(dispatcher.dispatch(key, execution, REQUEST))


async def read(inflight: InflightRequest) -> str:
    text = b"".join([piece async for piece in inflight.pieces()]).decode()
    return text if inflight.state is RequestState.ANSWERED else str(inflight.state)


def play(
    journal: Journal, script: Callable[[Dispatcher], Awaitable[list[str]]], *states: RequestState
) -> tuple[list[str], int]:
    """What was received in a script, and how many requests were sent."""

    async def main() -> tuple[list[str], int]:
        provider = Provider(*states)
        dispatcher = Dispatcher(provider, journal, lambda text: None)  # type: ignore[arg-type]
        answers = await script(dispatcher)
        return answers, provider.num_sent

    return asyncio.run(main())


def asking(*requests: tuple[str, RequestKey]) -> Callable[[Dispatcher], Awaitable[list[str]]]:
    async def script(dispatcher: Dispatcher) -> list[str]:
        return [await answer(dispatcher, *each) for each in requests]

    return script


ONE, TWO, THREE = ("one", KEY), ("two", KEY), ("three", KEY)


@pytest.mark.parametrize(
    ("requests", "states", "answers", "num_sent"),
    [
        ([ONE, TWO, THREE], [], ["1", "1", "1"], 1),
        ([ONE, ONE], [], ["1", "2"], 2),
        ([ONE, ONE, TWO, TWO, TWO], [], ["1", "2", "1", "2", "3"], 3),
        ([ONE, ONE, TWO], [RequestState.REFUSED], ["refused", "2", "2"], 2),
        ([ONE, TWO], [RequestState.REFUSED], ["refused", "2"], 2),
        ([ONE, ONE], [RequestState.UNSENT], ["unsent", "2"], 2),
        ([ONE, ONE, TWO, TWO], [RequestState.LOST], ["lost", "2", "lost", "2"], 2),
        ([ONE, ("one", OTHER_CALL), ("one", OTHER)], [], ["1", "2", "3"], 3),
        (
            [ONE, ("one", OTHER), TWO, ("two", OTHER)],
            [RequestState.REFUSED],
            ["refused", "2", "refused", "2"],
            2,
        ),
        ([ONE, ("two", OTHER), ("two", OTHER)], [], ["1", "lost", "2"], 2),
    ],
    ids=[
        "a later execution receives what the first was answered",
        "an execution that asks again after an answer wants another one",
        "a later execution receives both answers in their order",
        "a retry after a refusal is sent",
        "a refusal is not replayed, so that a better key has its chance",
        "a request that never left is sent when asked again",
        "a lost request is reported to each execution once, then sent again",
        "another call and another request are sent",
        "the way to a fallback is replayed",
        "what no execution will ask for is lost before another request is sent",
    ],
)
def test_what_may_have_been_billed_is_replayed_once_to_each_execution(
    journal: Journal, requests, states, answers: list[str], num_sent: int
):
    assert play(journal, asking(*requests), *states) == (answers, num_sent)


def test_a_fallback_is_sent_while_the_first_model_still_runs_the_request_given_up(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        dispatcher.release(dispatcher.dispatch(KEY, "one", REQUEST), "one")
        return [await answer(dispatcher, "one", OTHER)]

    assert play(journal, script) == (["2"], 2)


def test_an_execution_that_asks_while_the_request_runs_waits_for_its_answer(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        requests = [dispatcher.dispatch(KEY, name, REQUEST) for name in ("one", "two")]
        return [await read(each) for each in requests]

    assert play(journal, script) == (["1", "1"], 1)


def test_equal_requests_of_one_execution_at_the_same_time_are_several(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        requests = [dispatcher.dispatch(KEY, "one", REQUEST) for _ in range(2)]
        return [await read(each) for each in requests]

    assert play(journal, script) == (["1", "2"], 2)


def test_an_execution_that_stopped_reading_can_read_again(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        inflight = dispatcher.dispatch(KEY, "one", REQUEST)
        dispatcher.release(inflight, "one")
        return [await answer(dispatcher, "one"), await answer(dispatcher, "one")]

    assert play(journal, script) == (["1", "2"], 2)


def test_an_answer_is_replayed_by_the_next_gateway_on_the_same_journal(journal: Journal):
    assert play(journal, asking(ONE)) == (["1"], 1)
    assert play(journal, asking(ONE)) == (["1"], 0)


def test_a_request_that_cannot_be_journaled_is_not_sent(tmp_path: Path):
    journal = Journal(tmp_path / "closed.sqlite")
    journal.close()

    async def script(dispatcher: Dispatcher) -> list[str]:
        with pytest.raises(sqlite3.Error):
            dispatcher.dispatch(KEY, "one", REQUEST)
        await dispatcher.drain()
        return []

    assert play(journal, script) == ([], 0)


def test_an_answer_that_cannot_be_journaled_is_passed_on(tmp_path: Path):
    journal = Journal(tmp_path / "closing.sqlite")

    async def script(dispatcher: Dispatcher) -> list[str]:
        inflight = dispatcher.dispatch(KEY, "one", REQUEST)
        journal.close()
        return [await read(inflight)]

    assert play(journal, script) == (["1"], 1)


@pytest.mark.parametrize(
    ("kind", "status", "is_passed_on"),
    [
        ("text/event-stream; charset=utf-8", 200, True),
        ("text/event-stream", 500, False),
        ("application/json", 200, False),
    ],
)
def test_a_stream_is_passed_on_from_its_first_byte_and_anything_else_when_complete(
    kind: str, status: int, is_passed_on: bool
):
    async def main() -> bool:
        inflight = InflightRequest(1)
        waiting = asyncio.create_task(inflight.has_response())
        inflight.begin_response(status, (("Content-Type", kind),))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_passed_on_now = waiting.done()
        inflight.finish(RequestState.ANSWERED)
        assert await waiting
        return is_passed_on_now

    assert asyncio.run(main()) is is_passed_on
