import pytest
from offline_programs import AREA, PACKING, SPREAD, in_process_problem, result

from costada.evaluators.contract import Evaluation, failed
from costada.graph.build import create_discovery_graph
from costada.models.offline import OfflineModel
from costada.nodes.settings import Settings


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
        problem, OfflineModel(seed=1), budget=0.2, settings=Settings(seed=1)
    )
    rows = list(graph.stream({}, stream_mode="custom"))
    bests = [row["best_objective"] for row in rows if "best_objective" in row]
    assert bests[-1] > target
    assert len(set(bests)) > 3
