"""Entry point of one run of a sweep: the ordinary command, which also stops if the sweep dies.

Its standard input begins with a line that holds the environment of the sweep, keys included. What a
process is started with could be read by other programs of the same user.
"""

import json
import os
import signal
import sys
from importlib import import_module
from threading import Thread

from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option
from costada.runs.interruption import ExitCode, drain_on_every_sigterm
from costada.store.outage import trust_address

STANDARD_INPUT = 0


def _stop_with_the_sweep() -> None:
    """Interrupt this run when the sweep closes its end of the pipe to standard input."""
    os.read(STANDARD_INPUT, 1)  # not by sys.stdin, whose lock the end of the process may need
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # Slurm sends it to every process of a job before its time limit; the parent acts on it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    drain_on_every_sigterm()
    set_process_option(PR_SET_DUMPABLE, 0)
    if not (line := sys.stdin.buffer.readline()).endswith(b"\n"):  # the sweep has died
        sys.exit(ExitCode.INTERRUPTED)
    os.environ.update(json.loads(line))
    Thread(target=_stop_with_the_sweep, daemon=True).start()
    trust_address()  # the sweep has reached its database
    import_module("costada.cli.main").main()
