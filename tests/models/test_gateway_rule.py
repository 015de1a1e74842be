"""Which requests a gateway sends, and which it answers from its journal."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from costada.models.gateway.dispatch import Dispatcher, InflightRequest, Request
from costada.models.gateway.journal import Journal, RequestKey, RequestState

KEY = RequestKey("run/1/generation/1", "hash")
OTHER = KEY._replace(request_hash="other")
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


async def told(dispatcher: Dispatcher, execution: str, key: RequestKey = KEY) -> str:
    """Return what an execution is told, as number or state."""
    return await listen(dispatcher.dispatch(key, execution, REQUEST))


async def listen(inflight: InflightRequest) -> str:
    text = b"".join([piece async for piece in inflight.pieces()]).decode()
    return text if inflight.state is RequestState.ANSWERED else str(inflight.state)


def play(
    journal: Journal, script: Callable[[Dispatcher], Awaitable[list[str]]], *states: RequestState
) -> tuple[list[str], int]:
    """Return what was told in a script, and how many requests were sent."""

    async def main() -> tuple[list[str], int]:
        provider = Provider(*states)
        dispatcher = Dispatcher(provider, journal, lambda text: None)  # type: ignore[arg-type]
        answers = await script(dispatcher)
        return answers, provider.num_sent

    return asyncio.run(main())


def asking(*executions: str) -> Callable[[Dispatcher], Awaitable[list[str]]]:
    async def script(dispatcher: Dispatcher) -> list[str]:
        return [await told(dispatcher, execution) for execution in executions]

    return script


def test_a_later_execution_is_told_what_the_first_was_answered(journal: Journal):
    assert play(journal, asking("first", "second", "third")) == (["1", "1", "1"], 1)


def test_an_execution_that_asks_again_after_an_answer_wants_another_one(journal: Journal):
    assert play(journal, asking("first", "first")) == (["1", "2"], 2)


def test_a_later_execution_is_told_both_answers_in_their_order(journal: Journal):
    script = asking("first", "first", "second", "second", "second")
    assert play(journal, script) == (["1", "2", "1", "2", "3"], 3)


def test_a_retry_after_a_refusal_is_sent(journal: Journal):
    script = asking("first", "first", "second")
    assert play(journal, script, RequestState.REFUSED) == (["refused", "2", "2"], 2)


def test_a_refusal_is_not_retold_so_that_a_better_key_has_its_chance(journal: Journal):
    assert play(journal, asking("first", "second"), RequestState.REFUSED) == (["refused", "2"], 2)


def test_a_request_that_never_left_is_sent_when_asked_again(journal: Journal):
    assert play(journal, asking("first", "first"), RequestState.UNSENT) == (["unsent", "2"], 2)


def test_a_lost_request_is_told_to_each_execution_once_and_then_sent_again(journal: Journal):
    script = asking("first", "first", "second", "second")
    assert play(journal, script, RequestState.LOST) == (["lost", "2", "lost", "2"], 2)


def test_another_call_and_another_request_are_sent(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        other_call = KEY._replace(call="run/2/generation/1")
        keys = (KEY, other_call, OTHER)
        return [await told(dispatcher, "one", key) for key in keys]

    assert play(journal, script) == (["1", "2", "3"], 3)


def test_the_way_to_a_fallback_is_retold(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        asked = [("one", KEY), ("one", OTHER), ("two", KEY), ("two", OTHER)]
        return [await told(dispatcher, *each) for each in asked]

    answers = ["refused", "2", "refused", "2"]
    assert play(journal, script, RequestState.REFUSED) == (answers, 2)


def test_a_fallback_is_sent_while_the_first_model_still_works_on_what_was_given_up(
    journal: Journal,
):
    async def script(dispatcher: Dispatcher) -> list[str]:
        dispatcher.release(dispatcher.dispatch(KEY, "one", REQUEST), "one")
        return [await told(dispatcher, "one", OTHER)]

    assert play(journal, script) == (["2"], 2)


def test_what_nobody_will_ask_for_is_told_as_lost_before_another_request_is_sent(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        asked = [("one", KEY), ("two", OTHER), ("two", OTHER)]
        return [await told(dispatcher, *each) for each in asked]

    assert play(journal, script) == (["1", "lost", "2"], 2)


def test_who_asks_while_the_request_is_under_way_waits_for_its_answer(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        flights = [dispatcher.dispatch(KEY, name, REQUEST) for name in ("first", "second")]
        return [await listen(inflight) for inflight in flights]

    assert play(journal, script) == (["1", "1"], 1)


def test_equal_requests_of_one_execution_at_the_same_time_are_several(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        flights = [dispatcher.dispatch(KEY, "first", REQUEST) for _ in range(2)]
        return [await listen(inflight) for inflight in flights]

    assert play(journal, script) == (["1", "2"], 2)


def test_an_execution_that_stopped_listening_can_go_on_listening(journal: Journal):
    async def script(dispatcher: Dispatcher) -> list[str]:
        inflight = dispatcher.dispatch(KEY, "first", REQUEST)
        dispatcher.release(inflight, "first")
        return [await told(dispatcher, "first"), await told(dispatcher, "first")]

    assert play(journal, script) == (["1", "2"], 2)


def test_an_answer_is_told_by_the_next_gateway_on_the_same_journal(journal: Journal):
    assert play(journal, asking("first")) == (["1"], 1)
    assert play(journal, asking("first")) == (["1"], 0)


def test_a_request_that_cannot_be_journaled_is_not_sent(tmp_path: Path):
    journal = Journal(tmp_path / "closed.sqlite")
    journal.close()

    async def script(dispatcher: Dispatcher) -> list[str]:
        with pytest.raises(sqlite3.Error):
            dispatcher.dispatch(KEY, "first", REQUEST)
        await dispatcher.drain()
        return []

    assert play(journal, script) == ([], 0)


def test_an_answer_that_cannot_be_journaled_is_told_nevertheless(tmp_path: Path):
    journal = Journal(tmp_path / "closing.sqlite")

    async def script(dispatcher: Dispatcher) -> list[str]:
        inflight = dispatcher.dispatch(KEY, "first", REQUEST)
        journal.close()
        return [await listen(inflight)]

    assert play(journal, script) == (["1"], 1)


@pytest.mark.parametrize(
    ("kind", "status", "is_told"),
    [
        ("text/event-stream; charset=utf-8", 200, True),
        ("text/event-stream", 500, False),
        ("application/json", 200, False),
    ],
)
def test_a_stream_is_told_from_its_first_byte_and_anything_else_when_complete(
    kind: str, status: int, is_told: bool
):
    async def main() -> bool:
        inflight = InflightRequest(1)
        waiting = asyncio.create_task(inflight.has_response())
        inflight.begin_response(status, (("Content-Type", kind),))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_told_now = waiting.done()
        inflight.finish(RequestState.ANSWERED)
        assert await waiting
        return is_told_now

    assert asyncio.run(main()) is is_told
