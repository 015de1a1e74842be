"""The process of one tracker: reads a run from standard input, line by line, and logs it.

A tracker's library may hang, crash, take seconds to load or register handlers of its own; here it
does so without the run. The process outlives a run that is killed, and logs what it has received.
"""

import fcntl
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option
from costada.reports.tracking import (
    CHECK,
    Step,
    TrackedEnd,
    TrackedRun,
    make_tracker,
)
from costada.store.files import open_shared

DIED = TrackedEnd("interrupted", has_failed=False, files={})


def main() -> None:
    """Log a run to the tracker that the command line names.

    Programs of the same user cannot read the tracker's login in the process's environment.
    """
    set_process_option(PR_SET_DUMPABLE, 0)
    tracker = make_tracker(sys.argv[1])
    tracker.check()
    if CHECK in sys.argv[2:]:
        return
    messages = read_messages()
    run = TrackedRun(**next(messages))
    # The process of the run before a kill may still be writing.
    with open_shared(Path(f"{run.folder}.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        last, end = tracker.begin(run), DIED
        for message in messages:
            if "reason" in message:
                end = TrackedEnd(**message)
                continue
            # A resumed run sends all rows again, and the tracker has those up to `last`.
            steps = [Step(*each) for each in message["steps"] if each[0] > last]
            if steps:
                tracker.log(steps)
                last = steps[-1].iteration
        tracker.end(end)


def read_messages() -> Iterator[dict[str, Any]]:
    """The messages of the run, without one that was cut off when its process died."""
    for line in sys.stdin.buffer:
        if line.endswith(b"\n"):
            yield json.loads(line)


if __name__ == "__main__":
    main()
