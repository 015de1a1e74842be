"""How near plans come to a lower bound on their time, judged outside of the candidate's process."""

from random import Random

SIZES = ((12, 3), (40, 6), (90, 7), (150, 16))
"""Jobs and machines of each call."""


def drawn(seed):
    rng = Random(seed)
    return [
        {"seconds": [round(rng.paretovariate(1.5), 3) for _ in range(jobs)], "machines": machines}
        for jobs, machines in SIZES
    ]


CALLS = drawn(1)


def quality(seconds, machines, chosen):
    """The lower bound on the time of any plan over the time of this one."""
    if not isinstance(chosen, list) or len(chosen) != len(seconds):
        raise ValueError(
            f"plan() returned {chosen!r:.80}; expected a list of {len(seconds)} machines"
        )
    loads = [0.0] * machines
    for job, machine in enumerate(chosen):
        if not isinstance(machine, int) or not 0 <= machine < machines:
            raise ValueError(f"job {job} is on {machine!r:.80}; expected 0 to {machines - 1}")
        loads[machine] += seconds[job]
    return max(max(seconds), sum(seconds) / machines) / max(loads)


def score(results):
    found = []
    for call, result in zip(CALLS, results, strict=True):
        if result.error is not None:
            raise ValueError(result.error)
        found.append(quality(call["seconds"], call["machines"], result.output))
    return {"combined_score": sum(found) / len(found), "worst": min(found)}
