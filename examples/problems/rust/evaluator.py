"""Number of bins that a program uses for several lists of items."""

import math
import random
from collections import Counter

CAPACITY = 100
LISTS = [
    [random.Random(f"{seed} {place}").randint(20, 70) for place in range(60)] for seed in range(3)
]
CALLS = [{"stdin": f"{CAPACITY} {len(sizes)}\n" + "\n".join(map(str, sizes))} for sizes in LISTS]


def score(results):
    """Mean share of the bins that are needed at least; a bin that is too full is rejected."""
    shares = []
    for sizes, result in zip(LISTS, results, strict=True):
        if result.error is not None:
            raise ValueError(result.error)
        filled = Counter()
        bins = result.output["stdout"].split()
        if len(bins) != len(sizes):
            raise ValueError(f"the program printed {len(bins)} bins; expected {len(sizes)}")
        for size, number in zip(sizes, bins, strict=True):
            filled[number] += size
        if max(filled.values()) > CAPACITY:
            raise ValueError(f"a bin holds {max(filled.values())}; expected at most {CAPACITY}")
        shares.append(math.ceil(sum(sizes) / CAPACITY) / len(filled))
    return {"combined_score": sum(shares) / len(shares)}
