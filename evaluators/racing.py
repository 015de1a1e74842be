"""When a candidate is rejected before it was judged on all examples of a data set.

A candidate races a rival that was judged on all examples, such as its parent. Both are compared on
the same examples, which the candidate gets in random order without replacement. It is rejected as
soon as full scores on all others would not put it above the rival, or a sequential test shows that
its mean over all examples is not above the rival's. None is rejected while it is ahead on the
examples seen, so a rejected candidate is never estimated above its rival.

The test is by betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 86(1), 2024, Sec. 5 on sampling without replacement): somebody who starts with a
capital of 1 bets that the next difference is below what it must be on average if the candidate is
at least as good as the rival. If it is, no way to bet makes the capital grow on average, so the
chance that it ever reaches `1 / error` is at most `error` (Ville's inequality), however often one
looks. It may look only at times, such as at the ends of batches: what the capital has been between
two looks does not count. It needs fewer examples than an empirical Bernstein bound (ibid., Sec. 4).
"""

from collections.abc import Sequence
from math import fsum, inf

BETS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0)
"""Shares of the largest bet that cannot lose more than the capital. A part of the capital follows
each of them: their mean is as valid as each, and close to the best one."""


def is_rejected(
    scores: Sequence[float], order: Sequence[int], rival: Sequence[float], error: float
) -> bool:
    """Whether a candidate is rejected after the examples that it was judged on.

    Args:
        scores: Its scores in [0, 1], in the order of judging.
        order: The example of each of them, drawn at random without replacement.
        rival: The rival's scores in [0, 1] on all examples.
        error: Most chance that a candidate whose mean is not below the rival's is ever rejected by
            the test; 0: no candidate is rejected.
    """
    if not error:
        return False
    own = fsum(scores)
    if own > fsum(_on_the_same(scores, order, rival)):
        return False
    is_lost = own + len(rival) - len(scores) <= fsum(rival)
    return is_lost or betting_capital(scores, order, rival) * error >= 1.0


def betting_capital(scores: Sequence[float], order: Sequence[int], rival: Sequence[float]) -> float:
    """The capital that bets against the candidate have made of 1.

    Before each example, the differences that are left must have a mean of at least `needed` for the
    candidate to reach the rival. A bet of `b` multiplies the capital by `1 - b * (difference -
    needed)`, and `b` is at most `1 / (1 - needed)`, as a difference is at most 1.
    """
    capitals = [1.0] * len(BETS)
    total = 0.0
    for number, (score, place) in enumerate(zip(scores, order, strict=False)):
        needed = -total / (len(rival) - number)
        if needed >= 1.0:
            return inf
        difference = score - rival[place]
        surplus = (difference - needed) / (1.0 - needed)
        capitals = [
            capital * (1.0 - bet * surplus) for capital, bet in zip(capitals, BETS, strict=True)
        ]
        total += difference
    return fsum(capitals) / len(BETS)


def estimated_mean(scores: Sequence[float], order: Sequence[int], rival: Sequence[float]) -> float:
    """The mean score of a candidate over all examples, from some that it was judged on.

    The rival's mean and the mean difference to it on these examples: what makes an example hard is
    hard for both, so it varies less than the candidate's own mean.
    """
    seen = _on_the_same(scores, order, rival)
    estimate = (fsum(rival) / len(rival)) + (fsum(scores) - fsum(seen)) / len(scores)
    return min(1.0, max(0.0, estimate))


def _on_the_same(
    scores: Sequence[float], order: Sequence[int], rival: Sequence[float]
) -> list[float]:
    """The rival's scores on the examples that the candidate was judged on."""
    return [rival[place] for place, _ in zip(order, scores, strict=False)]
