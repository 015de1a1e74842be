"""A run's second looks at programs: one secret for the whole run, kept with it."""

from fakes import program
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import graph_of, run_until

from costada.evaluators.contract import Holdout, holdout_seed
from costada.evaluators.problem import Problem
from costada.values.evaluation import Evaluation

THREAD = {"configurable": {"thread_id": "1"}}


def test_every_program_is_judged_with_the_key_of_its_run_also_after_a_resume():
    looked = []

    def calls(seed):
        looked.append(seed)
        return [{}]

    def score(results, seed=0, published=None):
        return Evaluation(score=results[0].output, objective=None, is_valid=True)

    watched = Problem(
        name="watched",
        task="Return a large number.",
        initial_program=program(0.1),
        entry_point="value",
        score=score,
        calls=[{}],
        holdout=Holdout(calls=calls, score=score, margin=0.5),
    )
    graph, _ = graph_of(problem=watched, budget=0.02, checkpointer=InMemorySaver())
    run_until(graph, THREAD, 2)
    key = graph.get_state(THREAD).values["holdout_key"]
    first, looked[:] = set(looked), []
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).values["holdout_key"] == key
    codes = [program(round(number / 10_000, 4)) for number in range(10_001)]
    possible = {holdout_seed(key, code) for code in codes}
    assert len(first & possible) == 2  # the initial program was judged before the run had a key
    assert looked
    assert set(looked) <= possible

    graph.invoke({}, {"configurable": {"thread_id": "2"}})
    assert graph.get_state({"configurable": {"thread_id": "2"}}).values["holdout_key"] != key
