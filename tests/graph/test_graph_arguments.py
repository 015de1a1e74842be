import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.store.memory import InMemoryStore
from toy_graph import graph_of

from costada.controller.ledger import Price
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings

SETTINGS = Settings(price=Price(1, 2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"problem": "circle_packing"}, r"problem: got 'circle_packing', expected a Problem"),
        ({"budget": "1"}, r"budget: got '1', expected finite dollars above 0"),
        ({"budget": True}, r"budget: got True, expected finite dollars above 0"),
        ({"budget": None}, r"budget: got None, expected finite dollars above 0"),
        ({"settings": {"seed": 3}}, r"settings: got \{'seed': 3\}, expected Settings"),
        ({"store": InMemoryStore()}, r"store: got .*, expected RunStore\(path\) or None"),
        (
            {"settings": Settings(price=Price(1, 2), guide_price=Price(1, 2))},
            r"guide_price: got one without guide_model",
        ),
    ],
)
def test_an_argument_that_cannot_work_is_refused_at_once(changed, message):
    arguments = {"problem": toy_problem(), "budget": 1.0, "settings": SETTINGS, **changed}
    problem = arguments.pop("problem")
    with pytest.raises(ValueError, match=message):
        create_discovery_graph(problem, ScriptedModel(answer=hashed_answer), **arguments)


def test_a_seed_that_is_no_number_is_refused_before_the_first_call():
    graph, model = graph_of()
    with pytest.raises(ValueError, match="seed: got 'x', expected a whole number"):
        graph.invoke({"seed": "x"})
    assert model.prompts == []
