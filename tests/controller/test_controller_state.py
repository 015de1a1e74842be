import json

import pytest

from costada.controller.frontier import Frontier
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.state import ControllerState, from_record, to_record

STATE = ControllerState(
    budget=1.0,
    spent=0.1 + 0.2,
    iteration=17,
    frontiers=(Frontier(0.1, 1 / 3, 1e-300, 8), Frontier(0.7)),
    incumbent_score=0.7,
    stagnation=3,
    low_yield_cost=0.1 * 3,
    guidance_proven=True,
    mode_override=Mode.BREAKTHROUGH,
    consolidation_left=1,
    held_frontier=1,
    cycle=GuidanceCycle(Mode.REFINEMENT, 0.2, (0, 1, 2), 1, True, True),
    pending=None,
    guide_failed=True,
)


def test_a_record_survives_json_and_gives_back_an_equal_state() -> None:
    assert from_record(json.loads(json.dumps(to_record(STATE)))) == STATE


def test_a_record_of_a_fresh_state_has_plain_empty_values() -> None:
    record = to_record(ControllerState(1.0, 0.0, 0, (Frontier(0.5),), 0.5))
    assert (record["cycle"], record["pending"], record["held_frontier"]) == (None, None, None)
    assert record["frontiers"] == [
        {"best_score": 0.5, "smoothed_utility": 0.0, "allocation_estimate": 0.0, "visits": 0}
    ]


def test_modes_are_recorded_as_plain_text() -> None:
    assert type(to_record(STATE)["mode_override"]) is str


def test_an_unknown_mode_is_refused_with_its_field() -> None:
    record = to_record(STATE)
    record["pending"] = "sideways"
    with pytest.raises(ValueError, match=r"pending: got 'sideways', expected one of \['break"):
        from_record(record)
