"""What commands write beside results: a line per error, warnings, output of evaluators."""

import logging
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from errno import ENOSPC
from functools import partial
from select import POLLERR, poll
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TextIO

import typer

from costada.models.errors import UnmeteredCall, describe
from costada.reports import json_log
from costada.reports.terminal import show
from costada.runs.interruption import STOPPED_AT_ONCE, ExitCode
from costada.store.outage import Patience, waiting_for_database
from costada.values.redaction import without_passwords


@contextmanager
def refusing(code: ExitCode, hint: str = "") -> Iterator[None]:
    """Exit with a message when the block raises an error that needs no traceback.

    Errors of other kinds are defects and pass. Ctrl-C exits with its own code.

    Args:
        code: The exit code; a purse with too little money left has its own.
        hint: What to do next; printed below the message.
    """
    try:
        yield
    except (KeyboardInterrupt, InterruptedError):
        say(STOPPED_AT_ONCE, hint, level="error")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (ValueError, UnmeteredCall) as error:
        message, code = _refusal(error, code)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _is_unread(sys.stdout):
            raise  # `head` has read enough: Typer ends the command without a word
        has_path = error.filename and error.strerror
        own = describe(error) if error.errno or not error.args else str(error)
        message = f"{error.filename}: {error.strerror}" if has_path else own
        if error.errno == ENOSPC and not hint:
            hint = "Free some space, then repeat the command."
    except sqlite3.Error as error:
        message = describe(error)
    else:
        return
    say(message, hint, level="error")
    raise typer.Exit(code)


def _refusal(error: ValueError | UnmeteredCall, code: ExitCode) -> tuple[str, ExitCode]:
    """The message of an error in the words of the command line, and the exit code."""
    # Not above: a help text waits for no library that only an error needs.
    from pydantic import ValidationError

    from costada.runs.config import RunConfig
    from costada.runs.user_input import as_option, explain, with_options
    from costada.store.accounts import OverBudget

    if isinstance(error, OverBudget):
        return str(error), ExitCode.UNPAID
    message = str(error)
    if isinstance(error, ValidationError):
        message = explain(error, RunConfig.model_fields, as_option)
    return with_options(message, RunConfig.model_fields), code


@contextmanager
def naming_options(*fields: str) -> Iterator[None]:
    """Let errors of the block begin with options in place of these arguments of a function."""
    from costada.runs.user_input import with_options

    try:
        yield
    except ValueError as error:
        raise ValueError(with_options(str(error), fields)) from None


def _is_unread(stream: TextIO) -> bool:
    """Whether the reader of a pipe has closed it."""
    watched = poll()
    watched.register(stream, 0)
    return any(event & POLLERR for _, event in watched.poll(0))


@contextmanager
def showing_warnings() -> Iterator[None]:
    """Print each warning of the block as one line on standard error, at its end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=RuntimeWarning, message="sandbox:")
        try:
            yield
        finally:
            for each in caught:
                say(str(each.message))


@contextmanager
def showing_pauses(notify: Callable[[str], None]) -> Iterator[None]:
    """Pass on what the library logs during the block, such as that a run is paused."""
    if json_log.is_on():  # has it already
        yield
        return
    handler = logging.Handler(logging.WARNING)

    def emit(record: logging.LogRecord) -> None:
        with suppress(OSError):  # standard error is closed; a log line must not end a call
            notify(record.getMessage())

    handler.emit = emit  # type: ignore[method-assign]
    logger = logging.getLogger("costada")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def outlasting(longest_pause: float, *, starting_only: bool = False) -> Iterator[None]:
    """Wait in the block for a database that is away, and say so; Ctrl-C ends that.

    With `starting_only`, only for one whose server answers: a new address may be wrong.
    """
    patience = Patience(longest_pause, starting_only=starting_only)
    with showing_pauses(say), waiting_for_database(patience):
        yield


@contextmanager
def keeping_output_clean(is_wanted: bool = True) -> Iterator[None]:
    """Redirect what a user's evaluator prints to standard error, away from the result."""
    if not is_wanted:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def announce(text: str, **facts: Any) -> None:
    """Print where and how a command serves; in a log in JSON it is the event `serving`."""
    if json_log.is_on():
        json_log.log_event("serving", text, **facts)
    else:
        show(text)


def say(message: str, hint: str = "", *, level: json_log.Level = "warning") -> None:
    """Write a message to standard error, and below it what to do next.

    On a terminal the message breaks between words; the hint may be a command to copy. Passwords in
    addresses are left out. The level is that of the message in a log in JSON.
    """
    if json_log.is_on():
        json_log.log_message(message, level, hint=without_passwords(hint))
        return
    text = without_passwords(f"costada: {message}")
    if sys.stderr.isatty():
        width = get_terminal_size().columns
        wrap = partial(fill, width=width, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(map(wrap, text.splitlines()))
    show(text, is_error=True)
    if hint:
        show(without_passwords(hint), is_error=True)
