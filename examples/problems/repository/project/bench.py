"""Prints how close the packing is to the least possible number of bins."""

import json
import math
import random
import time

from packing import pack

TOLERANCE = 1e-9


def lists(count=12, length=120):
    source = random.Random(7)
    for number in range(count):
        largest = 0.4 + 0.05 * number
        yield [source.uniform(0.05, largest) for _ in range(length)]


def num_bins(sizes):
    bins = pack(list(sizes))
    if sorted(index for each in bins for index in each) != list(range(len(sizes))):
        raise SystemExit("each item must be in exactly one bin")
    if any(sum(sizes[index] for index in each) > 1 + TOLERANCE for each in bins):
        raise SystemExit("a bin is larger than 1")
    return len(bins)


def main():
    begun = time.perf_counter()
    used = [num_bins(sizes) for sizes in lists()]
    least = [math.ceil(sum(sizes)) for sizes in lists()]
    if time.perf_counter() - begun > 5:
        raise SystemExit("packing took more than 5 seconds")
    score = sum(least) / sum(used)
    print(json.dumps({"combined_score": score, "bins": sum(used), "least": sum(least)}))


if __name__ == "__main__":
    main()
