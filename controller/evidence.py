"""Evidence that the search stalls: progress predicates, stagnation, low-yield spending."""

from costada.controller.constants import Constants


def made_progress(global_gain: float, constants: Constants) -> bool:
    """Return whether a step raised the incumbent meaningfully (Prog, B.4.2)."""
    return global_gain > constants.progress_threshold


def made_incumbent_progress(cycle_gain: float, constants: Constants) -> bool:
    """Return whether a cycle raised the incumbent above its baseline (Inc, B.4.2)."""
    return cycle_gain > constants.incumbent_threshold


def stagnation(previous: int, global_gain: float, constants: Constants) -> int:
    """Return the steps in a row without meaningful progress (nu_t, B.4.1)."""
    return 0 if made_progress(global_gain, constants) else previous + 1


def is_low_yield(utility: float, allocation_reward: float, constants: Constants) -> bool:
    """Return whether a step earned neither utility nor allocation reward (l_t, B.4.1)."""
    return (
        utility <= constants.progress_threshold
        and allocation_reward <= constants.progress_threshold
    )


def low_yield_cost(previous: float, step_cost: float, is_low_yield: bool) -> float:
    """Return the dollars spent in a row on steps that earned nothing (L_t, B.4.1)."""
    return previous + step_cost if is_low_yield else 0.0
