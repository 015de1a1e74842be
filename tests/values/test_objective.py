import pytest

from costada.values.evaluation import Objective, objective_values, read_objectives


def test_an_objective_is_a_metric_and_the_way_in_which_it_improves():
    speed, memory = read_objectives(["speed:max", "peak memory:min"])
    assert speed == Objective("speed", "max")
    assert (speed.name, memory.name) == ("speed:max", "peak memory:min")
    assert (speed.gain(2.0), memory.gain(2.0)) == (2.0, -2.0)
    assert Objective.read("a:b:min").metric == "a:b"


@pytest.mark.parametrize("text", ["speed", ":max", "speed:up", "speed:MAX", "", " :min", 3, None])
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match="expected a string such as 'speed:max' or 'memory:min'"):
        Objective.read(text)


def test_a_metric_that_was_not_reported_has_no_value():
    objectives = read_objectives(["speed:max", "memory:min"])
    found = objective_values(objectives, {"memory": 3.0, "other": 1.0})
    assert found == {"speed:max": None, "memory:min": 3.0}
