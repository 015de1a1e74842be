LOAD_WEIGHT = 0.05
"""What a second of work already given to a machine counts; its place in the turn counts 1."""


def assign(seconds, jobs, machines):
    """The machine of each job: the next one in turn, unless it has much more to do than others."""
    loads, chosen = [0.0] * machines, [0] * len(seconds)
    for place, job in enumerate(jobs):
        costs = [LOAD_WEIGHT * loads[each] + (each - place) % machines for each in range(machines)]
        chosen[job] = costs.index(min(costs))
        loads[chosen[job]] += seconds[job]
    return chosen
