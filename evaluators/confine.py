"""A problem under the limits and in the layer that a run wants."""

from dataclasses import replace

from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandboxed import Confined


def confine(
    problem: Problem,
    *,
    sandbox: Layer | None = None,
    timeout: float | None = None,
    memory_mb: int | None = None,
) -> Problem:
    """Return the problem with its layer chosen, and with the limits given in place of its own.

    A problem whose own `evaluate` runs the candidates is returned as it is.

    Args:
        problem: The problem.
        sandbox: What is to hold the candidates; None: what the problem says.
        timeout: Seconds of one evaluation.
        memory_mb: Memory of one evaluation.

    Raises:
        ValueError: If this machine does not offer the layer, or the problem's own `evaluate`
            cannot be confined.
    """
    given = {"sandbox": sandbox, "timeout": timeout, "memory_mb": memory_mb}
    if not isinstance(problem.evaluate, Confined):
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}: got {value}, but problem {problem.name!r} runs candidates with an"
                    " evaluate of its own; expected none"
                )
        return problem
    limits = replace(
        problem.limits,
        wall_seconds=problem.limits.wall_seconds if timeout is None else timeout,
        memory_mb=problem.limits.memory_mb if memory_mb is None else memory_mb,
    )
    return replace(problem, limits=limits, sandbox=chosen_layer(sandbox or problem.sandbox))


def layer_of(problem: Problem) -> Layer | None:
    """Return what holds the problem's candidates; None if its own `evaluate` sees to that."""
    return problem.sandbox if isinstance(problem.evaluate, Confined) else None
