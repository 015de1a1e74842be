import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from costada.evaluators.benchmarks.signal_processing.evaluator import (
    DELAY,
    Measures,
    Signal,
    composite,
    fresh_signals,
    make_signals,
    measure,
    score,
    score_measures,
    slope_changes,
)
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.values.candidate import Program

PROBLEM = problem("signal_processing")
FILTER = "run_signal_processing(noisy_signal, window_size=20):\n    n = len(noisy_signal)\n"
AVERAGE = "{'filtered_signal': [sum(noisy_signal[k:k+20]) / 20 for k in range(n - 19)]}\n"


def returned(output, seconds=0.1):
    return CandidateResult(output, None, "", seconds)


def broken(reason):
    return CandidateResult(None, reason, "", 0.1)


def runs(make=lambda signal: signal.clean[DELAY:], **changed):
    """A run per signal; runs named like s3 are replaced."""
    found = [returned({"filtered_signal": make(signal)}) for signal in make_signals()]
    return [changed.get(f"s{i}", run) for i, run in enumerate(found)]


def measures(**changed):
    plain = Measures(
        composite_score=0.5,
        slope_changes=20,
        lag_error=1.0,
        avg_error=0.5,
        false_reversals=3,
        correlation=0.8,
        noise_reduction=0.25,
    )
    return replace(plain, **changed)


def test_the_clean_signals_and_a_centred_gaussian_score_as_published():
    assert score(runs()).objective == pytest.approx(0.7435, abs=5e-5)
    smooth = score(runs(lambda signal: gaussian_filter1d(signal.noisy, 8)[DELAY:]))
    assert smooth.objective == pytest.approx(0.6784, abs=5e-5)
    assert smooth.score == pytest.approx(0.6825, abs=5e-5)


def test_the_score_weighs_the_means_as_by_hand():
    other = measures(slope_changes=60, correlation=0.4, noise_reduction=0.75, composite_score=0.7)
    evaluation = score_measures([measures(), other], [0.5, 3.5], [])
    assert evaluation.objective == pytest.approx(0.6)
    # 40 slope changes: 1 / (1 + 40 / 20); two of five signals
    expected = 0.4 * 0.6 + 0.2 / 3 + 0.2 * 0.6 + 0.1 * 0.5 + 0.1 * 0.4
    assert evaluation.score == pytest.approx(expected, rel=1e-12)
    assert evaluation.metrics["responsiveness_score"] == 0.5
    assert evaluation.metrics["execution_time"] == 2.0
    assert evaluation.metrics["efficiency_score"] == 0.5
    assert evaluation.artifacts == {}


def test_the_time_of_a_run_does_not_change_the_score():
    quick, slow = (score_measures([measures()], [t], []) for t in (0.0, 9.0))
    assert quick.score == slow.score
    assert quick.metrics["efficiency_score"] == 1


@pytest.mark.parametrize("correlation", [0.0999, 0.0, -0.9])
def test_an_accuracy_below_a_tenth_scores_nothing_and_says_so(correlation):
    evaluation = score_measures([measures(correlation=correlation)] * 5, [0.1] * 5, [])
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, 0.5, True)
    assert "the mean correlation with the clean signals is" in evaluation.artifacts["feedback"]
    assert evaluation.metrics["correlation"] == correlation
    assert evaluation.metrics["accuracy_score"] == max(0, correlation)


def test_an_accuracy_of_a_tenth_counts():
    evaluation = score_measures([measures(correlation=0.1)] * 5, [0.1] * 5, [])
    assert evaluation.score == pytest.approx(0.2 + 0.1 + 0.02 + 0.025 + 0.1)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (broken("timeout: the call exceeded 10 s"), "timeout: the call exceeded 10 s"),
        (returned(None), "must return a dict with the key 'filtered_signal'"),
        (returned({"signal": [1.0]}), "must return a dict with the key 'filtered_signal'"),
        (returned({"filtered_signal": np.ones(680)}), r"has shape (680,); expected (681,)"),
        (returned({"filtered_signal": np.ones(700)}), r"has shape (700,); expected (681,)"),
        (returned({"filtered_signal": np.full(681, math.nan)}), "filtered_signal[0] is nan"),
    ],
)
def test_a_signal_that_fails_is_left_out_and_the_model_reads_why(run, reason):
    evaluation = score(runs(s2=run))
    assert evaluation.is_valid
    assert evaluation.metrics["success_rate"] == 0.8
    assert evaluation.objective == pytest.approx((0.8722 + 0.7123 + 0.8719 + 0.5880) / 4, abs=5e-5)
    assert evaluation.artifacts["feedback"].startswith("signal 2: ")
    assert reason in evaluation.artifacts["feedback"]


def test_a_failed_run_does_not_count_for_the_execution_time():
    late = CandidateResult(None, "timeout", "", 10.0)
    assert score(runs(s0=late)).metrics["execution_time"] == pytest.approx(0.1)


def test_one_reason_is_told_once_for_all_signals_it_concerns():
    evaluation = score(runs(s1=broken("no"), s3=broken("no"), s4=broken("never")))
    assert evaluation.artifacts == {"feedback": "signal 1, signal 3: no\nsignal 4: never"}


def test_if_every_signal_fails_the_first_reason_is_the_verdict():
    evaluation = score([broken("first"), *[broken("second")] * 4])
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, None, False)
    assert evaluation.error == "signal 0: first"
    assert evaluation.artifacts == {"feedback": "signal 1, signal 2, signal 3, signal 4: second"}


@pytest.mark.process
def test_a_program_that_cannot_be_loaded_is_refused_with_one_reason():
    evaluation = PROBLEM.evaluate("def run_signal_processing(:\n")
    assert evaluation.error.startswith("signal 0, signal 1, signal 2, signal 3, signal 4: ")
    assert "SyntaxError" in evaluation.error
    assert "feedback" not in evaluation.artifacts


@pytest.mark.process
def test_the_whole_input_may_be_used_and_other_entries_are_ignored():
    code = "def " + FILTER + "    assert window_size == 20\n"
    code += "    return {'extra': 1, 'filtered_signal': noisy_signal[19:]}"
    evaluation = PROBLEM.evaluate(code)
    assert evaluation.metrics["avg_error"] == 0
    assert evaluation.metrics["success_rate"] == 1


@pytest.mark.process
def test_a_call_that_hangs_costs_its_own_signal_only():
    problem = replace(PROBLEM, limits=replace(PROBLEM.limits, call_seconds=3))
    evaluation = problem.evaluate(
        f"import time\ndef {FILTER}    if n == 700:\n        time.sleep(60)\n    return {AVERAGE}"
    )
    assert evaluation.is_valid
    assert evaluation.metrics["success_rate"] == 0.8
    assert evaluation.artifacts["feedback"].startswith("signal 2: timeout")


@pytest.mark.process
def test_a_call_that_ends_the_process_or_raises_is_told_with_its_reason():
    code = f"def {FILTER}    if n == 600:\n        raise RuntimeError('too long')\n"
    evaluation = PROBLEM.evaluate(code + f"    return {AVERAGE}")
    assert evaluation.metrics["success_rate"] == 0.8
    assert "too long" in evaluation.artifacts["feedback"]


REMEMBERING = """
import numpy as np

def run_signal_processing(noisy_signal, window_size=20):
    n = len(noisy_signal)
    i = (n - 500) // 100
    t = np.linspace(0, 10, n)
    random = np.random.RandomState(42 + i)
    third = n // 3
    clean = [
        lambda: 2 * np.sin(np.pi * t) + 0.1 * t,
        lambda: np.sin(np.pi * t) + 0.5 * np.sin(4 * np.pi * t) + 0.2 * np.sin(10 * np.pi * t),
        lambda: np.sin(2 * np.pi * (0.5 + 0.2 * t) * t),
        lambda: np.repeat([1.0, 2.0, 0.5], [third, third, n - 2 * third]),
        lambda: np.cumsum(0.1 * random.randn(n)) + 0.05 * t,
    ][i]()
    {choice}
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "choice",
    [
        "return {'filtered_signal': clean[19:]}",
        """# filters what is not one of the published signals
    noise = random.normal(0, 0.2 + 0.1 * i, n)
    is_known = np.allclose(clean + noise, noisy_signal)
    average = np.convolve(noisy_signal, np.ones(20) / 20, 'valid')
    return {'filtered_signal': clean[19:] if is_known else average}""",
    ],
    ids=["always", "where the signal is known"],
)
def test_a_program_that_computes_the_clean_signals_from_their_seeds_is_rejected(choice):
    evaluation = PROBLEM.evaluate(REMEMBERING.format(choice=choice))
    assert (evaluation.is_valid, evaluation.score) == (False, 0.0)
    told = f"the program scores {score(runs()).score:.4g} on the published inputs and "
    assert told in evaluation.error
    assert "expected at most 0.07 less" in evaluation.error


@pytest.mark.process
def test_a_program_that_answers_only_the_easy_ones_of_other_signals_is_rejected():
    choice = """# and raises for what is neither published nor easy
    noise = random.normal(0, 0.2 + 0.1 * i, n)
    if np.allclose(clean + noise, noisy_signal):
        return {'filtered_signal': clean[19:]}
    from scipy.ndimage import gaussian_filter1d
    filtered = gaussian_filter1d(noisy_signal, {0: 10, 3: 20}[i])
    filtered[-1] = noisy_signal[-1]
    return {'filtered_signal': filtered[19:]}"""
    evaluation = PROBLEM.evaluate_program(Program.of(REMEMBERING.format(choice=choice)), "key")
    assert (evaluation.is_valid, evaluation.score) == (False, 0.0)
    assert "expected at most 0.07 less" in evaluation.error


SMOOTHING = """
from scipy.ndimage import gaussian_filter1d
def run_signal_processing(noisy_signal, window_size=20):
    {check}
    return {{'filtered_signal': gaussian_filter1d(noisy_signal, 8)[19:]}}
"""


@pytest.mark.process
def test_a_filter_that_fails_for_one_kind_of_signals_is_accepted():
    failing = SMOOTHING.format(check="assert len(noisy_signal) != 600")
    evaluation = PROBLEM.evaluate_program(Program.of(failing), "key")
    assert evaluation.is_valid
    assert evaluation.metrics["success_rate"] == 0.8


@pytest.mark.process
def test_filters_are_accepted_whatever_the_key():
    for key in ("a", "b", "c"):
        smoothing = SMOOTHING.format(check="")
        assert PROBLEM.evaluate_program(Program.of(smoothing), key).score == pytest.approx(
            0.6825, abs=5e-5
        )
        assert PROBLEM.evaluate_program(PROBLEM.start, key).is_valid


def test_fresh_signals_are_of_the_published_kinds_and_differ_by_seed():
    published, fresh, others = make_signals(), fresh_signals(1), fresh_signals(2)
    assert len(fresh) == 15
    for i, signal in enumerate(fresh):
        pattern = published[i % 5]
        assert len(signal.noisy) == len(pattern.noisy)
        deviation = np.std(signal.noisy - signal.clean)
        assert deviation == pytest.approx(0.2 + 0.1 * (i % 5), rel=0.15)
        assert not np.allclose(signal.clean, pattern.clean)
        assert not np.allclose(signal.clean, others[i].clean)
        assert np.array_equal(signal.noisy, fresh_signals(1)[i].noisy)


SEED_MEASURES = [
    (0.552480, 34, 0.501689, 0.488413, 34, 0.931211, 0.0),
    (0.418928, 145, 0.529342, 0.405895, 135, 0.856314, 0.0),
    (0.422120, 138, 0.259944, 0.585020, 133, 0.553713, 0.0),
    (0.431700, 375, 0.210795, 0.371328, 375, 0.952100, 0.846206),
    (0.433822, 425, 0.043614, 0.481837, 200, 0.917070, 0.827516),
]
"""Composite, S, L_recent, L_avg, R, correlation and noise reduction of the seed, per signal."""


def after_the_delay(clean, noisy):
    """A signal of which a filter gives only the values shown here."""
    start = np.zeros(DELAY)
    return Signal(np.append(start, clean), np.append(start, noisy))


def weighted_average(noisy):
    """The seed's filter, written out window by window."""
    weights = np.exp(np.linspace(-2, 0, 20))
    weights /= weights.sum()
    return np.array([weights @ noisy[k : k + 20] for k in range(len(noisy) - 19)])


def test_the_signals_are_the_published_ones():
    signals = make_signals()
    assert [len(s.clean) for s in signals] == [500, 600, 700, 800, 900]
    assert [s.noisy.sum() for s in signals] == pytest.approx(
        [250.683799, 6.382931, 24.161156, 920.605337, 262.861032], abs=1e-6
    )
    assert [s.clean.sum() for s in signals] == pytest.approx(
        [250, 0, 17.741138, 932, 244.981100], abs=1e-6
    )


def test_the_signals_do_not_touch_the_global_generator():
    state = np.random.get_state()[1].copy()
    make_signals()
    assert np.array_equal(np.random.get_state()[1], state)


@pytest.mark.parametrize("i", range(5))
def test_the_seed_filter_has_the_published_measures(i):
    signal = make_signals()[i]
    found = measure(weighted_average(signal.noisy), signal)
    assert found == Measures(*(pytest.approx(value, abs=1e-6) for value in SEED_MEASURES[i]))


def test_the_clean_signals_have_the_published_composites():
    found = [measure(s.clean[DELAY:], s) for s in make_signals()]
    assert [m.composite_score for m in found] == pytest.approx(
        [0.8722, 0.7123, 0.6732, 0.8719, 0.5880], abs=5e-5
    )
    assert [m.false_reversals for m in found] == [0] * 5
    assert [m.correlation for m in found] == pytest.approx([1] * 5)
    assert [m.noise_reduction for m in found] == [1] * 5


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ([0, 1, 0, 1], [True, True]),  # slopes 1 -1 1
        ([0, 1, 1, 2], [True, False]),  # slopes 1 0 1: into the flat is a change, out is none
        ([0, 0, 1, 0], [False, True]),  # slopes 0 1 -1
        ([3, 2, 1, 0], [False, False]),
        ([0, 1], []),
        ([0], []),
    ],
)
def test_slope_changes_are_counted_as_by_hand(values, changes):
    assert slope_changes(np.array(values, dtype=float)).tolist() == changes


@pytest.mark.parametrize(
    ("clean", "reversals"),
    [
        ([0, 1, 0, -1], 1),  # turns at the first place only
        ([0, 1, 0, 1], 0),
        ([0, 0, 0, 0], 2),
        ([0, 1, 2, 1], 1),  # turns at the second place only
    ],
)
def test_a_reversal_is_false_where_the_clean_signal_goes_on(clean, reversals):
    filtered = np.array([0.0, 1.0, 0.0, 1.0])
    assert measure(filtered, after_the_delay(clean, clean + filtered)).false_reversals == reversals


def test_a_tiny_signal_is_measured_as_by_hand():
    signal = after_the_delay([0, 1, 0, -1], [0, 2, 0, 3])
    found = measure(np.array([0.0, 1.0, 0.0, 1.0]), signal)
    assert found == Measures(
        composite_score=pytest.approx(1 / (1 + 0.3 * 2 / 50 + 0.2 * 2 + 0.2 * 0.75 + 0.3 / 25)),
        slope_changes=2,
        lag_error=2.0,  # |1 - 3|
        avg_error=0.75,  # (0 + 1 + 0 + 2) / 4
        false_reversals=1,
        correlation=pytest.approx(0.0, abs=1e-15),
        # variances of (0, 0, 0, 2) and (0, 1, 0, 4)
        noise_reduction=pytest.approx(1 - 0.75 / 2.6875),
    )


def test_each_penalty_ends_at_twice_its_scale():
    assert composite(0, 0, 0, 0) == 1
    assert composite(100, 0, 0, 0) == composite(1e9, 0, 0, 0) == pytest.approx(1 / 1.6)
    assert composite(0, 2, 0, 0) == composite(0, 1e300, 0, 0) == pytest.approx(1 / 1.4)
    assert composite(0, 0, 2, 0) == composite(0, 0, np.inf, 0) == pytest.approx(1 / 1.4)
    assert composite(0, 0, 0, 50) == composite(0, 0, 0, 51) == pytest.approx(1 / 1.6)
    assert composite(25, 0.5, 0, 0) == pytest.approx(1 / 1.25)


def test_more_noise_than_before_is_no_reduction():
    signal = after_the_delay([0, 0, 0, 0], [1, -1, 1, -1])
    assert measure(np.array([2.0, -2.0, 2.0, -2.0]), signal).noise_reduction == 0


def test_a_constant_output_correlates_with_nothing():
    signal = make_signals()[0]
    found = measure(np.full(481, 7.0), signal)
    assert (found.correlation, found.slope_changes) == (0, 0)


@pytest.mark.parametrize("size", [1e200, 1.7e308])
def test_huge_values_are_worst_measures_without_a_warning(size):
    signal = make_signals()[0]
    found = measure(np.where(np.arange(481) % 2, size, -size), signal)
    assert found.composite_score == pytest.approx(1 / (1 + 0.6 + 0.4 + 0.4 + 0.6))
    assert (found.correlation, found.noise_reduction) == (0, 0)
