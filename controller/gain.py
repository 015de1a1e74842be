"""The one normalised gain behind local, global and cycle gain."""


def normalized_gain(score: float | None, reference: float) -> float:
    """Return how far a score rises above a reference, at least 0.

    The rise is divided by the larger magnitude of the two, or by 1 when both are smaller.
    Against the frontier's best this is the local gain (delta_t, Sec. 4.2), against the
    incumbent the global gain (g_t, Sec. 4.2), and for the incumbent against the baseline of a
    cycle the cycle gain (g^G_t, B.4.3).

    Args:
        score: What was reached; None when nothing was evaluated, which gains nothing.
        reference: What there was before.
    """
    if score is None:
        return 0.0
    return max((score - reference) / max(abs(score), abs(reference), 1.0), 0.0)
