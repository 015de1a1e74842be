import asyncio
from dataclasses import replace
from functools import cache

import pytest
from offline_programs import AREA, PACKING, SPREAD, in_process_problem, result

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.offline import OfflineModel
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation, failed


@cache
def evaluate(code: str) -> Evaluation:
    """Run a program the offline model wrote in this process; its searches are short."""
    try:
        value = float(result(code)[-1])
    except (ArithmeticError, IndexError, NameError, SyntaxError, TypeError, ValueError) as error:
        return failed(repr(error))
    return Evaluation(score=value, objective=value, is_valid=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize(
    ("program", "target"),
    [(PACKING, 1.4), (AREA, 0.01), (SPREAD, 0.15)],
    ids=["packing", "area", "spread"],
)
def test_a_short_run_improves_programs_of_different_kinds(program, target):
    problem = in_process_problem(program.replace("run_packing", "run"), evaluate)
    assert evaluate(problem.initial_program).score < target
    graph = create_discovery_graph(
        problem, OfflineModel(seed=1), budget=0.13, settings=Settings(seed=1)
    )
    rows = list(graph.stream({}, stream_mode="custom"))
    bests = [row["best_objective"] for row in rows if "best_objective" in row]
    assert bests[-1] > target
    assert len(set(bests)) > 3


def account(store: RunStore) -> list[object]:
    """Return everything of a run that does not depend on the clock."""
    (run_id,) = store.run_ids()
    calls = store.call_log.calls(run_id)
    return [
        *store.steps(run_id),
        *(replace(each, provider_id=None, ended_at=0.0, seconds=0.0) for each in calls),
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("generator", ["model", "agent"])
def test_a_run_is_the_same_however_it_is_streamed(generator):
    problem = in_process_problem(PACKING.replace("run_packing", "run"), evaluate)
    settings = Settings(seed=1, generator=generator, constants=Constants(max_iterations=4))
    stores = {way: RunStore() for way in ("plain", "messages", "both", "asynchronous")}
    graphs = {
        way: create_discovery_graph(
            problem, OfflineModel(seed=1), budget=0.5, settings=settings, store=store
        )
        for way, store in stores.items()
    }

    async def stream() -> None:
        async for _ in graphs["asynchronous"].astream({}, stream_mode="messages"):
            pass

    graphs["plain"].invoke({})
    assert list(graphs["messages"].stream({}, stream_mode="messages"))
    assert list(graphs["both"].stream({}, stream_mode=["messages", "custom"]))
    asyncio.run(stream())
    plain = account(stores["plain"])
    assert len(plain) >= 4 + 4
    for way in ("messages", "both", "asynchronous"):
        assert account(stores[way]) == plain, way
