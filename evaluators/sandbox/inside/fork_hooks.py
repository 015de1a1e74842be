"""What modules have Python call in each fork, left out where a fork becomes a worker."""

import os
import sys
from collections.abc import Callable, Collection

SEEDING, LOCKING = "random", "threading"
"""Modules whose hooks are left out: the first draws a seed, though a worker begins with the same
numbers as all others, the second renews locks that only another thread could hold. They take longer
than all that confines a worker, most of it to copy pages of memory that they write to.
"""

SEEDS_ANYWAY = SEEDING in sys.modules
"""Whether the start of the interpreter has loaded the first, so that its hook is registered."""

_register = os.register_at_fork
_left_out: Collection[str] = ()

Hook = Callable[[], object]


def intercept() -> None:
    """Have the hooks of modules that are loaded from now on left out where they may be."""
    os.register_at_fork = _register_optional  # type: ignore[assignment]


def stop_intercepting() -> None:
    """Have hooks registered as usual again."""
    os.register_at_fork = _register


def _register_optional(**hooks: Hook) -> None:
    _register(**{when: _optional(hook) for when, hook in hooks.items()})


def _optional(hook: Hook) -> Hook:
    module = getattr(hook, "__module__", None)
    if module not in (SEEDING, LOCKING):
        return hook

    def call_unless_left_out() -> None:
        if module not in _left_out:
            hook()

    return call_unless_left_out


def fork_worker() -> int:
    """Fork like `os.fork`, without what a worker does not need; its own forks call all hooks."""
    global _left_out
    _left_out = (SEEDING, LOCKING) if len(sys._current_frames()) == 1 else (SEEDING,)
    try:
        return os.fork()
    finally:
        _left_out = ()
