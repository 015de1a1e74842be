"""Checkpoints hold plain values: runs go on where nothing that a checkpoint names may be called."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_answers import submitting, trying
from billing_server import BillingServer
from fakes import IDEAS, ScriptedModel, hashed_answer, is_guide_prompt, toy_problem
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from tool_graph import graph_on
from toy_graph import PRICE, run_until, trace

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.graph.build import create_discovery_graph
from costada.models.offline.answers import STRATEGIES, strategy_text
from costada.nodes.settings import Settings
from costada.store.checkpoints import RunSaver
from costada.store.purse import Purse
from costada.store.run_store import RunStore

THREAD = {"configurable": {"thread_id": "1"}}


@contextmanager
def strict(path: Path) -> Iterator[SqliteSaver]:
    """Lend a user's saver in LangGraph's strict mode."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield SqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))


SAVERS: dict[str, Callable[[Path], Any]] = {
    "a strict saver": strict,
    "the run file's": lambda path: closing(RunSaver(path)),
}


@pytest.fixture(autouse=True)
def _nothing_is_blocked(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, "langgraph"):
        yield
    assert caplog.messages == []


def answer(prompt: str) -> str:
    if "class Strategy" in prompt:
        return f"```python\n{strategy_text(STRATEGIES[len(prompt) % len(STRATEGIES)])}```"
    return IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)


def graph_of(
    saver: Any, store: RunStore, *, budget: float = 1.0, purse: Any = None, **settings: Any
) -> Any:
    chosen = Settings(price=PRICE, constants=Constants(max_iterations=14), **settings)
    model = ScriptedModel(answer=answer, prompts=[])
    options = {"settings": chosen, "checkpointer": saver, "store": store, "purse": purse}
    return create_discovery_graph(toy_problem(), model, budget=budget, **options)


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_run_of_any_method_goes_on(tmp_path: Path, saver: str, method: str) -> None:
    store, path = RunStore(), tmp_path / "run.sqlite"
    with SAVERS[saver](path) as opened:
        rows = run_until(graph_of(opened, store, method=method), THREAD, 7)
    with SAVERS[saver](path) as opened:
        graph = graph_of(opened, store, method=method)
        rows += list(graph.stream(None, THREAD, stream_mode="custom"))
    assert rows == trace(graph_of(None, RunStore(), method=method))
    assert len(rows) == 14


@pytest.mark.parametrize("saver", SAVERS)
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
    with SAVERS[saver](path) as opened:
        state = graph_of(opened, store, **asks).invoke({}, THREAD)
    reasons = []
    while "__interrupt__" in state:
        (question,) = state["__interrupt__"]
        reasons.append(question.value["reason"])
        given = True if reasons[-1] == "guide" else {"budget": 0.5}
        with SAVERS[saver](path) as opened:
            state = graph_of(opened, store, **asks).invoke(Command(resume=given), THREAD)
        assert len(reasons) < 30
    assert (state["iterations"], set(reasons)) == (14, {"budget", "guide"})


@pytest.mark.parametrize("saver", SAVERS)
def test_a_model_with_tools_goes_on(tmp_path: Path, server: BillingServer, saver: str) -> None:
    server.script(trying(0.6), submitting("1.1.1"), trying(0.65), submitting("2.1.1"))
    store, path = RunStore(), tmp_path / "run.sqlite"
    with SAVERS[saver](path) as opened:
        run_until(graph_on(server, store, iterations=2, saver=opened), THREAD, 1)
    with SAVERS[saver](path) as opened:
        result = graph_on(server, store, iterations=2, saver=opened).invoke(None, THREAD)
    assert (result["iterations"], result["best_score"]) == (2, 0.65)
    assert len(server.requests) == 4


def test_the_strict_mode_of_the_environment_leaves_the_run_files_saver_as_it_is(
    tmp_path: Path,
) -> None:
    """A copy of the saver would hold a checkpoint back that closing the saver does not write."""
    with closing(RunSaver(tmp_path / "run.sqlite")) as saver:
        assert saver.with_allowlist({("os", "system")}) is saver
