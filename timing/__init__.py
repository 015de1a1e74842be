"""Run times for scores: `best_of`, which evaluators may also import inside of the sandbox."""

from costada.evaluators.sandbox.inside.stopwatch import best_of

__all__ = ["best_of"]
