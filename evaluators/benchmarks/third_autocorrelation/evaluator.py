"""Third autocorrelation inequality: a function whose autoconvolution has the lowest peak.

The initial program keeps the architecture of the published one: 400 normally distributed values,
the loss max|f*f| / (int f)^2 through a zero-padded Fourier transform, and 20000 steps of Adam whose
rate rises to 0.005 over 2000 steps and falls along a cosine until step 18000. It is plain numpy in
double precision; the published one draws its start with JAX, whose random numbers depend on its
version. Where the descent ends is decided by the start alone (scores from 0.42 to 0.95), so the
seed of the generator, 612, was searched for the published level: c3 is 2.51417 and the score
0.578975; published are 2.516835 and 0.578362. The end is not chaotic: it amplifies disturbances of
the start about tenfold, rounding (1e-15) as well as larger ones (1e-6), and numpy has promised not
to change the numbers of this generator.

f is defined on [-1/4, 1/4], of length WIDTH; TOLERANCE is how far the reported c3 may be from the
recomputed one. Up to MAX_DIRECT values np.convolve takes at most 2 ms; beyond, a Fourier transform
is used.
"""

from math import isfinite

import numpy as np

from costada import Direction, Evaluation, normalize
from costada.evaluators.benchmarks.checks import Floats, Value, float_array, tolerance_notes

ENTRY_POINT = "run"
TINY = 1e-100  # beside values of size 1, a squared sum below this is nothing but rounding

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

REFERENCE = 1.4556427953745406
WIDTH = 0.5
TOLERANCE = 0.001
MIN_SQUARED_INTEGRAL = 1e-09
MAX_DIRECT = 4096
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
def score(output: Value) -> Evaluation:
    """Return the verdict on a function: its own constant counts, not the reported one.

    Args:
        output: What the program returned: f_values (n,), c3, loss and n_points.

    Raises:
        ValueError: Naming the check that failed and by how much.
    """
    if not isinstance(output, list) or len(output) != 4:
        raise ValueError(f"{ENTRY_POINT} must return (f_values, c3, loss, n_points)")
    values = read_values(output[0], output[3])
    c3 = autocorrelation_constant(values)
    reported = _number(output[1], "c3")
    deviation = abs(reported - c3)
    both = f"reported is {reported:.9g}, recomputed {c3:.9g}; they differ by {deviation:.3g}"
    notes = tolerance_notes([(deviation, both)], TOLERANCE, what="reported c3")
    loss = float(output[2]) if isinstance(output[2], int | float) else 0.0
    return Evaluation(
        score=normalize(c3, REFERENCE, Direction.MINIMIZE),
        objective=c3,
        is_valid=True,
        metrics={"c3": c3, "loss": loss, "n_points": len(values)},
        artifacts=notes,
    )


def read_values(f_values: Value, n_points: Value) -> Floats:
    """Return the values of f as a finite one-dimensional array.

    Raises:
        ValueError: If they have another form, or another number than n_points says.
    """
    if not isinstance(f_values, list | np.ndarray) or len(f_values) == 0:
        raise ValueError("f_values holds no values; expected an array of shape (n_points,)")
    values = float_array(f_values, "f_values", (len(f_values),))
    if n_points is not None and _number(n_points, "n_points") != len(values):
        raise ValueError(f"n_points is {n_points}; f_values has {len(values)} values")
    return values


def autocorrelation_constant(values: Floats) -> float:
    """Return c3 = max|f*f| / (int f)^2 of a function that is constant on equal intervals.

    c3 does not change when f is multiplied by a number. f is therefore brought to a size below 1
    first, by a power of two, which is exact: neither huge nor tiny values overflow.

    Raises:
        ValueError: If the integral is too close to 0.
    """
    exponent = int(np.frexp(np.max(np.abs(values)))[1])
    scaled = np.ldexp(values, -exponent)
    total = float(np.sum(scaled))
    with np.errstate(over="ignore"):
        integral = float(np.ldexp(WIDTH / len(values) * total, exponent))
    square = WIDTH * total * total
    if integral * integral < MIN_SQUARED_INTEGRAL or square < TINY:
        raise ValueError(
            f"the integral of f is {integral:.6g}, its square below {MIN_SQUARED_INTEGRAL:g} or "
            "lost beside the values of f; expected an integral further from 0"
        )
    return len(values) * autoconvolution_peak(scaled) / square


def autoconvolution_peak(values: Floats) -> float:
    """Return the largest absolute value of the full discrete autoconvolution."""
    if len(values) <= MAX_DIRECT:
        return float(np.max(np.abs(np.convolve(values, values))))
    size = 1 << (2 * len(values) - 1).bit_length()
    transform = np.fft.rfft(values, size)
    return float(np.max(np.abs(np.fft.irfft(transform**2, size))))


# GUIDE-BLOCK-END


def _number(value: Value, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is a {type(value).__name__}; expected a finite number")
    if not isfinite(value):
        raise ValueError(f"{name} is {value}; expected a finite number")
    return float(value)
