"""Entry point of one run of a sweep: the ordinary command, which also stops if the sweep dies."""

import os
import signal
from threading import Thread

from costada.cli.main import main as command
from costada.runs.interruption import drain_on_every_sigterm

STANDARD_INPUT = 0


def _stop_with_the_sweep() -> None:
    """Interrupt this run when the sweep closes its end of the pipe to standard input."""
    os.read(STANDARD_INPUT, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # Slurm sends it to every process of a job before its time limit; the parent acts on it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    drain_on_every_sigterm()
    Thread(target=_stop_with_the_sweep, daemon=True).start()
    command()
