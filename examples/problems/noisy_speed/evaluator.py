"""Calls per second of a candidate's `count_pairs`; a wrong answer is rejected."""

import random
import runpy
from collections import Counter

from costada.values.timing import best_of

TOTAL = 500


def evaluate(program_path):
    """Time the candidate on numbers that it has not seen, and check the answer of that call."""
    rng = random.Random()
    numbers = [rng.randrange(TOTAL) for _ in range(300)]
    count_pairs = runpy.run_path(program_path)["count_pairs"]
    seconds, answer = best_of(count_pairs, numbers, TOTAL, times=3)
    if answer != expected(numbers):
        error = f"count_pairs returned {answer!r}; expected {expected(numbers)}"
        return {"combined_score": 0.0, "validity": 0.0, "error": error}
    return {"combined_score": 1 / seconds, "seconds": seconds}


def expected(numbers):
    """The pairs counted by another way: for each number, those seen before that complete it."""
    seen, found = Counter(), 0
    for number in numbers:
        found += seen[TOTAL - number]
        seen[number] += 1
    return found
