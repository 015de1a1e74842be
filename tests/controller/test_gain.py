import pytest

from costada.controller.credit import normalized_gain


@pytest.mark.parametrize(
    ("score", "reference", "gain"),
    [
        (0.7, 0.5, 0.2),
        (0.5, 0.7, 0.0),
        (0.5, 0.5, 0.0),
        (4.0, 3.0, 0.25),
        (1.0, -3.0, 4 / 3),
        (None, 0.5, 0.0),
    ],
)
def test_a_gain_is_the_rise_over_the_larger_magnitude_or_one(
    score: float | None, reference: float, gain: float
) -> None:
    assert normalized_gain(score, reference) == pytest.approx(gain, abs=1e-15)
