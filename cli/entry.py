"""Where the command begins: words on the terminal and shell completion, before libraries load."""

import os
import sys
from collections.abc import Sequence

from costada.evaluators.sandbox.inside.kernel import PR_SET_DUMPABLE, set_process_option
from costada.reports.status import show_status

COMPLETING = "_COSTADA_COMPLETE"
"""Variable of the environment by which a shell asks for completions."""

INSTALL, SHOW = "--install-completion", "--show-completion"
WITH_EVALUATOR = ("demo", "run", "resume", "evaluate", "check")
SILENT = ("--help", "--quiet")
REFUSED, INTERRUPTED = 2, 130


def main() -> None:
    """Answer a shell that completes a command line, or run the command of this process.

    Ctrl-C while libraries load ends it as it ends a command. Programs of the same user, such as
    candidates without a sandbox, cannot read this process's memory and environment, also while
    libraries load.
    """
    try:
        # First: from here on the environment, with its keys, is closed to others of the user.
        set_process_option(PR_SET_DUMPABLE, 0)
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run(words: Sequence[str]) -> None:
    if instruction := os.environ.get(COMPLETING):
        from costada.cli.completion import answer

        if answer(instruction):
            return
    from costada.cli.secret_files import read_secret_files
    from costada.reports.json_log import begin_if_asked

    try:
        begin_if_asked()
        read_secret_files()
    except ValueError as error:
        _refuse(str(error))
    if words[:1] in ([INSTALL], [SHOW]) and words[1:]:
        given = " ".join(words[1:])
        _refuse(
            f"{words[0]}: got {given!r}, expected nothing more: it is for the shell that calls it"
        )
    if words == [INSTALL]:
        from costada.cli.completion import table

        table()  # so that the first completion need not make it
    if words and words[0] in WITH_EVALUATOR and not set(SILENT) & set(words):
        show_status("Trying the evaluator ...")
    from costada.cli.main import main as command

    command()


def _refuse(message: str) -> None:
    from costada.cli.command_errors import say

    say(message, level="error")
    sys.exit(REFUSED)


if __name__ == "__main__":
    main()
