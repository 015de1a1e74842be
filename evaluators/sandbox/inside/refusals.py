"""Says in the log that an evaluator may start no processes, as soon as it tries to start one.

Evaluators catch the error of a refused process and call the candidate invalid, so that the answer
alone says nothing of it.
"""

import os
import sys

STARTING = (
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"),
    *("os.exec", "pty.spawn"),
)
"""Events by which Python reports that a process is about to be started."""

PROCESS_REFUSED = "No process may be started in this sandbox"
HINT = "if the evaluator needs processes, write processes = 16 in problem.toml"
MAX_NAME_CHARS = 60
LOG_FD = 2


def report_refused_processes() -> None:
    """Write one line to the log when this process first tries to start another one."""
    seen: list[str] = []

    def report(event: str, arguments: tuple[object, ...]) -> None:
        if seen or event not in STARTING:
            return
        seen.append(event)
        given = arguments[0] if arguments else None
        name = os.path.basename(os.fsdecode(given)) if isinstance(given, str | bytes) else ""
        shown = f" ({name[:MAX_NAME_CHARS]})" if name.isprintable() and name else ""
        os.write(LOG_FD, f"\n{PROCESS_REFUSED}{shown}: {HINT}\n".encode())

    sys.addaudithook(report)
