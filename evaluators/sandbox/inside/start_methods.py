"""The start methods of `multiprocessing`: on Linux, each of them starts a fork here.

A fresh interpreter, as `spawn` starts it, would lack what this process was given: semaphores,
models, stand-ins of packages, and the confinement of what runs the candidate. `forkserver` needs
sockets.
"""

import sys


def offer_start_methods() -> None:
    """Have `spawn` and `forkserver` start forks of this process."""
    if sys.platform == "linux":
        # Not imported by the server: few candidates need it.
        from multiprocessing import context

        methods = context._concrete_contexts  # type: ignore[attr-defined]
        methods |= dict.fromkeys(methods, methods["fork"])
