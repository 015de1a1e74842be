"""A method of a third party: registered in a line, run by the graph, typed for mypy."""

import pytest
from methods_of_others import METHODS_OF_OTHERS

from costada.controller.methods import METHODS


@pytest.mark.parametrize("name", METHODS_OF_OTHERS)
def test_an_entry_makes_a_method_known(name: str) -> None:
    try:
        exec(METHODS_OF_OTHERS[name], {"__name__": "others"})
        simulation = pytest.importorskip("costada.plugins.lab.landscape.simulation")
        run = simulation.simulate_run(name, seed=1, budget=0.2)
    finally:
        del METHODS[name]
    assert len(run.points) > 3
