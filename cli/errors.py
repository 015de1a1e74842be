"""What goes to standard error: one clear line for an error, warnings, prints of others."""

import logging
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout

import typer
from pydantic import ValidationError

from costada.models.errors import UnmeteredCall, describe
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.user_input import as_option, explain


@contextmanager
def refusing(code: ExitCode, hint: str = "") -> Iterator[None]:
    """End the command with a message when the block raises an error that needs no traceback.

    Errors of other kinds are defects and pass. Ctrl-C ends the command with its own code.

    Args:
        code: What the command then answers.
        hint: What to do next; printed below the message.
    """
    try:
        yield
    except (KeyboardInterrupt, InterruptedError):
        say("stopped at once", hint)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except ValidationError as error:
        say(explain(error, RunConfig.model_fields, as_option), hint)
        raise typer.Exit(code) from None
    except (ValueError, UnmeteredCall) as error:
        say(str(error), hint)
        raise typer.Exit(code) from None
    except OSError as error:
        has_place = error.filename and error.strerror
        say(f"{error.filename}: {error.strerror}" if has_place else describe(error), hint)
        raise typer.Exit(code) from None
    except sqlite3.Error as error:
        say(describe(error), hint)
        raise typer.Exit(code) from None


@contextmanager
def telling_warnings() -> Iterator[None]:
    """Show each warning of the block as one line on standard error, at its end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=RuntimeWarning, message="sandbox:")
        try:
            yield
        finally:
            for each in caught:
                say(str(each.message), "")


@contextmanager
def telling_pauses(notify: Callable[[str], None]) -> Iterator[None]:
    """Hand on what the library logs while the block runs, such as that a run is paused."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: notify(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("costada")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def keeping_output_clean(is_wanted: bool = True) -> Iterator[None]:
    """Send what an evaluator of the user's prints to standard error, which holds no result."""
    if not is_wanted:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def say(message: str, hint: str = "") -> None:
    """Write a message to standard error, and below it what to do next."""
    for line in (f"costada: {message}", hint):
        if line:
            show(line, is_error=True)
