"""Whatever saver a caller gives: a run that was stopped ends as if it had not been."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from agent_answers import submitting, trying
from billing_server import BillingServer
from fakes import (
    IDEAS,
    evaluate_value,
    hashed_answer,
    is_guide_prompt,
    stopping_evaluation,
    toy_problem,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command
from needed_plugins import of_every_method, strategy_reply
from toy_graph import (
    THREAD,
    as_stored,
    client,
    discovery,
    graph_of,
    resumed,
    run_until,
    scripted,
    trace,
)
from typing_extensions import TypedDict

from costada.store.checkpoints import RunSaver
from costada.store.purse import Purse
from costada.store.run_store import RunStore

BUDGET = 0.015
STOPPED_IN = 4
"""Iteration of the toy run in which it is stopped."""

ITERATIONS = 9
"""Of a run in LangGraph's strict mode."""


@dataclass(frozen=True)
class Place:
    """Where the checkpoints of a test are kept: a folder, a Postgres address, this process."""

    folder: Path
    postgres: str = ""
    memory: InMemorySaver = field(default_factory=InMemorySaver)

    @property
    def programs(self) -> Path:
        return self.folder / "programs.sqlite"

    @property
    def checkpoints(self) -> str:
        return str(self.folder / "checkpoints.sqlite")


@contextmanager
def in_memory(place):
    yield place.memory


@contextmanager
def in_postgres(place):
    with PostgresSaver.from_conn_string(place.postgres) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def in_memory_async(place):
    yield place.memory


@asynccontextmanager
async def in_postgres_async(place):
    async with AsyncPostgresSaver.from_conn_string(place.postgres) as saver:
        await saver.setup()
        yield saver


SYNC: dict[str, Callable[[Place], AbstractContextManager[Any]]] = {
    "memory": in_memory,
    "sqlite": lambda place: SqliteSaver.from_conn_string(place.checkpoints),
    "run file": lambda place: closing(RunSaver(place.programs)),
    "postgres": in_postgres,
}


@asynccontextmanager
async def in_run_file_async(place):
    with closing(RunSaver(place.programs)) as saver:
        yield saver


ASYNC: dict[str, Callable[[Place], AbstractAsyncContextManager[Any]]] = {
    "memory": in_memory_async,
    "run file": in_run_file_async,
    "sqlite": lambda place: AsyncSqliteSaver.from_conn_string(place.checkpoints),
    "postgres": in_postgres_async,
}


@pytest.fixture
def postgres():
    """The address of a schema of the test's own."""
    address = os.environ.get("COSTADA_POSTGRES")
    if address is None:
        pytest.skip("no Postgres server: `.ci/postgres make test` installs and starts one")
    name = f"test_{uuid4().hex}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{address}&options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def place(request, tmp_path):
    is_remote = request.node.callspec.params["saver"] == "postgres"
    return Place(tmp_path, request.getfixturevalue("postgres") if is_remote else "")


class Stop:
    """Stops a run at the end of a step (drained), or in the middle of one (broken off)."""

    def __init__(self, way):
        self.control = RunControl()
        self.is_drained = way == "drained"
        self.error = GraphDrained if self.is_drained else InterruptedError
        self.rows = []
        evaluate = evaluate_value if self.is_drained else stopping_evaluation(STOPPED_IN + 1)
        self.problem = toy_problem(evaluate=evaluate)

    def follow(self, steps):
        for row in steps:
            self.see(row)

    def see(self, row):
        self.rows.append(as_stored(row))
        if self.is_drained and row["iteration"] == STOPPED_IN:
            self.control.request_drain()


def toy(saver, store=None, problem=None):
    return graph_of(checkpointer=saver, store=store, problem=problem, budget=BUDGET)


@cache
def undisturbed():
    graph, _ = toy(InMemorySaver())
    rows = trace(graph, config=THREAD)
    return rows, graph.invoke(None, THREAD)


@pytest.mark.parametrize("way", ["drained", "broken off"])
@pytest.mark.parametrize("saver", SYNC)
def test_a_stopped_run_continues_with_the_same_steps(place, saver, way):
    stop = Stop(way)
    with SYNC[saver](place) as opened, RunStore(place.programs) as store:
        graph, _ = toy(opened, store, problem=stop.problem)
        with pytest.raises(stop.error):
            stop.follow(graph.stream({}, THREAD, stream_mode="custom", control=stop.control))
    with SYNC[saver](place) as opened, RunStore(place.programs) as store:
        graph, _ = toy(opened, store)
        rest = resumed(graph)
        assert graph.get_state(THREAD).values["stop_reason"] == "budget"
    assert stop.rows
    assert stop.rows + rest == undisturbed()[0]


@pytest.mark.parametrize("way", ["drained", "broken off"])
@pytest.mark.parametrize("saver", ASYNC)
def test_a_stopped_async_run_continues_with_the_same_steps(place, saver, way):
    stop = Stop(way)

    async def begin():
        async with ASYNC[saver](place) as opened:
            with RunStore(place.programs) as store:
                graph, _ = toy(opened, store, problem=stop.problem)
                steps = graph.astream({}, THREAD, stream_mode="custom", control=stop.control)
                async for row in steps:
                    stop.see(row)

    async def go_on():
        async with ASYNC[saver](place) as opened:
            with RunStore(place.programs) as store:
                graph, _ = toy(opened, store)
                rest = graph.astream(None, THREAD, stream_mode="custom")
                return [as_stored(row) async for row in rest]

    with pytest.raises(stop.error):
        asyncio.run(begin())
    assert stop.rows
    assert stop.rows + asyncio.run(go_on()) == undisturbed()[0]


@pytest.mark.parametrize("saver", ASYNC)
def test_a_cancelled_ainvoke_continues_to_the_same_result(place, saver):
    async def cancelled():
        evaluations = []

        def evaluate(code):
            evaluations.append(code)
            if len(evaluations) == STOPPED_IN:
                loop.call_soon_threadsafe(task.cancel)
            return evaluate_value(code)

        async with ASYNC[saver](place) as opened:
            with RunStore(place.programs) as store:
                problem = toy_problem(evaluate=evaluate)
                graph, _ = toy(opened, store, problem=problem)
                loop = asyncio.get_running_loop()
                task = asyncio.ensure_future(graph.ainvoke({}, THREAD))
                with pytest.raises(asyncio.CancelledError):
                    await task

    async def go_on():
        async with ASYNC[saver](place) as opened:
            with RunStore(place.programs) as store:
                graph, _ = toy(opened, store)
                return await graph.ainvoke(None, THREAD)

    asyncio.run(cancelled())
    assert asyncio.run(go_on()) == undisturbed()[1]


class ParentState(TypedDict, total=False):
    seed: int
    best_program: str
    spent: float
    note: str


def parent_of(child, saver):
    parent = StateGraph(ParentState)
    parent.add_node("discover", child)
    parent.add_node("write", lambda state: {"note": f"spent {state['spent']}"})
    parent.add_edge(START, "discover")
    parent.add_edge("discover", "write")
    parent.add_edge("write", END)
    return parent.compile(checkpointer=saver)


@pytest.mark.parametrize("mode", [None, True])
@pytest.mark.parametrize("saver", SYNC)
def test_under_the_saver_of_a_parent_a_stopped_run_continues_too(place, saver, mode):
    stop = Stop("broken off")
    with SYNC[saver](place) as opened, RunStore(place.programs) as store:
        child, _ = toy(mode, store, problem=stop.problem)
        with pytest.raises(InterruptedError):
            parent_of(child, opened).invoke({}, THREAD)
    with SYNC[saver](place) as opened, RunStore(place.programs) as store:
        child, model = toy(mode, store)
        result = parent_of(child, opened).invoke(None, THREAD)
    rows, expected = undisturbed()
    assert result["best_program"] == expected["best_program"]
    assert result["note"] == f"spent {expected['spent']}"
    assert len(model.prompts) < len(rows)


@contextmanager
def strict(path: Path) -> Iterator[SqliteSaver]:
    """Lend a user's saver in LangGraph's strict mode."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield SqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))


STRICT_SAVERS: dict[str, Callable[[Path], Any]] = {
    "a strict saver": strict,
    "the run file's": lambda path: closing(RunSaver(path)),
}


@pytest.fixture(autouse=True)
def _nothing_is_blocked(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, "langgraph"):
        yield
    assert caplog.messages == []


def answer_all(prompt: str) -> str:
    if "class Strategy" in prompt:
        return strategy_reply(len(prompt))
    return IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)


def strict_graph(saver: Any, store: RunStore, **settings: Any) -> Any:
    return discovery(
        scripted(answer_all), iterations=ITERATIONS, saver=saver, store=store, **settings
    )


@pytest.mark.parametrize("method", of_every_method())
def test_a_run_of_any_method_continues(tmp_path: Path, method: str) -> None:
    whole = trace(strict_graph(None, RunStore(), method=method))
    for saver, open_saver in STRICT_SAVERS.items():
        store, path = RunStore(), tmp_path / f"{saver}.sqlite"
        with open_saver(path) as opened:
            rows = run_until(strict_graph(opened, store, method=method), THREAD, 4)
        with open_saver(path) as opened:
            rows += resumed(strict_graph(opened, store, method=method))
        assert rows == whole
        assert len(rows) == ITERATIONS


@pytest.mark.parametrize("saver", STRICT_SAVERS)
def test_questions_wait_for_another_process(tmp_path: Path, saver: str) -> None:
    """Both questions, with a hard budget that is drawn from a hard purse."""
    store, path, purse = RunStore(), tmp_path / "run.sqlite", Purse(5, policy="hard")
    asks: dict[str, Any] = {
        "budget": 0.012,
        "purse": purse,
        "budget_policy": "hard",
        "approve_guides": True,
        "on_exhausted": "interrupt",
    }
    with STRICT_SAVERS[saver](path) as opened:
        state = strict_graph(opened, store, **asks).invoke({}, THREAD)
    reasons = []
    while "__interrupt__" in state:
        (question,) = state["__interrupt__"]
        reasons.append(question.value["reason"])
        given = True if reasons[-1] == "guide" else {"budget": 0.5}
        with STRICT_SAVERS[saver](path) as opened:
            state = strict_graph(opened, store, **asks).invoke(Command(resume=given), THREAD)
        assert len(reasons) < 30
    assert (state["iterations"], set(reasons)) == (ITERATIONS, {"budget", "guide"})


@pytest.mark.parametrize("saver", STRICT_SAVERS)
def test_a_model_with_tools_continues(tmp_path: Path, server: BillingServer, saver: str) -> None:
    server.script(trying(0.6), submitting("1.1.1"), trying(0.65), submitting("2.1.1"))
    store, path = RunStore(), tmp_path / "run.sqlite"

    def graph_on(server: BillingServer, store: RunStore, saver: Any) -> Any:
        options: dict[str, Any] = {"generator": "agent", "iterations": 2}
        return discovery(client(server), saver=saver, store=store, **options)

    with STRICT_SAVERS[saver](path) as opened:
        run_until(graph_on(server, store, opened), THREAD, 1)
    with STRICT_SAVERS[saver](path) as opened:
        result = graph_on(server, store, opened).invoke(None, THREAD)
    assert (result["iterations"], result["best_score"]) == (2, 0.65)
    assert len(server.requests) == 4


def test_the_strict_mode_of_the_environment_leaves_the_run_files_saver_as_it_is(
    tmp_path: Path,
) -> None:
    """A copy of the saver would hold a checkpoint back that closing the saver does not write."""
    with closing(RunSaver(tmp_path / "run.sqlite")) as saver:
        assert saver.with_allowlist({("os", "system")}) is saver
