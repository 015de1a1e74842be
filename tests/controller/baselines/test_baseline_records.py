"""A controller and its record in JSON say the same, to the last digit."""

import json
from math import inf

import pytest
from baseline_samples import CONSTANTS, bill, played, random_scores
from hypothesis import given
from hypothesis import strategies as st

from costada.controller.baselines.adaevolve import AdaEvolve, AdaEvolveState
from costada.controller.baselines.adaevolve_frontiers import PRESETS, AdaEvolveFrontier
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.baselines.progress import Progress
from costada.controller.baselines.uniform import Uniform, UniformState
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.method import Controller
from costada.controller.methods import METHODS

SCORE = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 10**9)
PROGRESS = st.builds(Progress, COUNT, SCORE, COUNT)
CYCLE = st.builds(
    GuidanceCycle,
    st.just(Mode.BREAKTHROUGH),
    SCORE,
    st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple),
    st.integers(0, 3),
    st.booleans(),
)
FRONTIER = st.builds(
    AdaEvolveFrontier,
    SCORE | st.just(-inf),
    SCORE,
    COUNT,
    COUNT,
    COUNT,
    SCORE,
    SCORE,
    st.sampled_from([None, *PRESETS]),
)
STATE = st.builds(
    AdaEvolveState,
    PROGRESS,
    st.lists(FRONTIER, min_size=1, max_size=5).map(tuple),
    SCORE,
    st.lists(st.booleans(), max_size=10).map(tuple),
    st.integers(-30, 1000),
    st.none() | CYCLE,
    st.booleans(),
)


def reread(controller: Controller) -> object:
    """Return the record after a way through strict JSON text."""
    return json.loads(json.dumps(controller.record(), allow_nan=False))


@given(STATE)
def test_any_state_of_adaevolve_survives_its_record(state: AdaEvolveState) -> None:
    controller = AdaEvolve(state, CONSTANTS)
    assert reread(controller) == controller.record()
    assert AdaEvolve.load(reread(controller), CONSTANTS) == controller


@given(PROGRESS, st.lists(SCORE, min_size=1, max_size=5))
def test_any_state_of_uniform_and_best_of_n_survives_its_record(
    progress: Progress, bests: list[float]
) -> None:
    uniform = Uniform(UniformState(progress, tuple(bests)), CONSTANTS)
    best_of_n = BestOfN(progress, CONSTANTS)
    assert reread(uniform) == uniform.record()
    assert reread(best_of_n) == best_of_n.record()
    assert Uniform.load(reread(uniform), CONSTANTS) == uniform
    assert BestOfN.load(reread(best_of_n), CONSTANTS) == best_of_n


@pytest.mark.parametrize("method", ["adaevolve", "uniform", "best-of-n"])
def test_every_record_names_iteration_and_pending_call(method: str) -> None:
    for controller, _ in played(method, random_scores(2, 60), bill(60)):
        record = controller.record()
        assert record["iteration"] == controller.iteration
        assert record["pending"] == controller.pending
        assert METHODS[method].load(reread(controller), CONSTANTS) == controller


def test_a_frontier_without_a_score_is_recorded_as_none() -> None:
    state = AdaEvolveState(Progress(3, 0.5), (AdaEvolveFrontier(),), 0.5, ())
    record = AdaEvolve(state, CONSTANTS).record()
    assert record["frontiers"][0]["best_score"] is None


def test_unknown_names_are_refused_with_their_field() -> None:
    record = dict(AdaEvolve.start(0.5, 1.0, CONSTANTS).record())
    with pytest.raises(ValueError, match="pending: got 'refinement', expected 'breakthrough'"):
        AdaEvolve.load(record | {"pending": "refinement"}, CONSTANTS)
    frontier = record["frontiers"][0] | {"preset": "bold"}
    with pytest.raises(ValueError, match=r"preset: got 'bold', expected one of \['balanced'"):
        AdaEvolve.load(record | {"frontiers": [frontier]}, CONSTANTS)
