"""Where a run of a sweep starts: the ordinary command, which also ends when the sweep dies."""

import os
import signal
from threading import Thread

STANDARD_INPUT = 0


def main() -> None:
    """Carry out the command that the arguments spell."""
    Thread(target=_end_with_the_sweep, daemon=True).start()
    from costada.cli.main import main as command

    command()


def _end_with_the_sweep() -> None:
    """Ask this run to drain once nobody holds the other end of its input any more."""
    os.read(STANDARD_INPUT, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
