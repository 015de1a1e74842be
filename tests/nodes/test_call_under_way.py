"""A step that is executed again while a request of its first execution is still under way."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from bare_context import PRICE, context_of
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.checkpoint.memory import InMemorySaver

from costada.controller.constants import Constants
from costada.graph.build import DiscoveryGraph, create_discovery_graph
from costada.nodes.calls.asking import ask_model
from costada.nodes.settings import Settings
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.purse import Purse
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

THREAD = {"configurable": {"thread_id": "run"}}
KEY = CallKey("run", 1, "generation", 1)
MOMENT = 0.3
"""Seconds that a run has for going on although it should wait."""


class HeldModel:
    """A model whose first answer arrives when it is let go."""

    def __init__(self) -> None:
        self.asked, self.let_go = Event(), Event()
        self.model = ScriptedModel(answer=self._answer, prompts=[])

    def _answer(self, prompt: str) -> str:
        if not self.asked.is_set():
            self.asked.set()
            assert self.let_go.wait(20)
        return hashed_answer(prompt)


def graph_of(held: HeldModel, store: RunStore, purse: Purse, iterations: int) -> DiscoveryGraph:
    constants = Constants(max_iterations=iterations, max_attempts=1)
    return create_discovery_graph(
        toy_problem(),
        held.model,
        budget=1.0,
        settings=Settings(price=PRICE, constants=constants),
        store=store,
        purse=purse,
        checkpointer=InMemorySaver(),
    )


def check_books(found: Any, held: HeldModel, store: RunStore, purse: Purse) -> None:
    """Check that nothing was sent twice, and that rows, run and purse tell the same dollars."""
    calls = list(store.call_log.calls(found["run_id"]))
    assert [call.status for call in calls] == [CallStatus.DONE] * found["iterations"]
    assert len(held.model.prompts) == found["iterations"]
    total = sum((call.cost for call in calls), Decimal(0))
    assert (found["spent"], purse.spent) == (float(total), total)


def test_an_async_run_that_is_cancelled_and_resumed_at_once_waits_for_its_request() -> None:
    held, store, purse = HeldModel(), RunStore(), Purse(1.0)
    graph = graph_of(held, store, purse, iterations=3)

    async def cancel_and_resume() -> Any:
        first = asyncio.create_task(graph.ainvoke({}, THREAD))
        await asyncio.to_thread(held.asked.wait, 20)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(graph.ainvoke(None, THREAD))
        done, _ = await asyncio.wait({second}, timeout=MOMENT)
        assert not done
        held.let_go.set()
        return await second

    found = asyncio.run(cancel_and_resume())
    state = {**found, "run_id": graph.get_state(THREAD).values["run_id"]}
    check_books(state, held, store, purse)


def test_two_threads_that_carry_the_same_run_out_share_a_request() -> None:
    held, store, purse = HeldModel(), RunStore(), Purse(1.0)
    graph = graph_of(held, store, purse, iterations=1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(graph.invoke, {}, THREAD)
        assert held.asked.wait(20)
        second = pool.submit(graph.invoke, None, THREAD)
        assert not wait({second}, timeout=MOMENT).done
        held.let_go.set()
        found = [first.result(20), second.result(20)]
    assert found[0] == found[1]
    state = {**found[0], "run_id": graph.get_state(THREAD).values["run_id"]}
    check_books(state, held, store, purse)


def is_awaited(store: RunStore) -> bool:
    """Return whether someone who asks for the call once more waits."""

    def need_its_end() -> None:
        with store.call_log.under_way.none_of(KEY):
            pass

    with ThreadPoolExecutor() as pool:
        return not wait({pool.submit(need_its_end)}, timeout=20).done


def test_nobody_waits_for_a_request_that_could_not_be_written_down(tmp_path: Path) -> None:
    RunStore(tmp_path / "run.sqlite").close()
    with RunStore(tmp_path / "run.sqlite", is_read_only=True) as store:
        model = ScriptedModel(answer=hashed_answer, prompts=[])
        with pytest.raises(PermissionError, match="may not be written"):
            ask_model(model, Prompt("be brief", "improve it"), KEY, {}, context_of(model, store))
        assert not is_awaited(store)
    assert not model.prompts


def test_nobody_waits_for_a_request_whose_end_could_not_be_written_down() -> None:
    store = RunStore()

    def close_and_answer(prompt: str) -> str:
        store.close()
        return hashed_answer(prompt)

    model = ScriptedModel(answer=close_and_answer, prompts=[])
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        ask_model(model, Prompt("be brief", "improve it"), KEY, {}, context_of(model, store))
    assert not is_awaited(store)
