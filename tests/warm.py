"""Processes for tests, forked from one that has loaded the libraries and done what is slow once."""

import multiprocessing
import os
import runpy
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import NamedTemporaryFile

from costada.cli.main import COMMANDS

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "costada.agents.middleware",
        "costada.agents.tool",
        *(f"costada.cli.{place.partition(':')[0]}" for place, *_ in COMMANDS.values()),
        "costada.experiments.comparison.comparison_report",
        "costada.experiments.comparison.comparison_report",
        "costada.models.chat_models",
        "costada.models.retries",
        "costada.plugins.offline",
        "costada.reports.graph_drawing",
        "costada.reports.picture",
        "costada.runs.runner",
        "langchain.agents",
        "langchain_openai",
        "langgraph.checkpoint.sqlite",
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_svg",
        "matplotlib.figure",
        "openai.lib.streaming.chat",
        "openai.resources.chat.completions",
        "scipy.stats",
        "preheated",
    ]
)
PATIENCE_SECONDS = 120


def start_server() -> None:
    """Start the process that others are forked from.

    Before Python 3.12 it does not take over `sys.path`, so that it would not find `preheated`.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    forkserver.ensure_running()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


def keyless_environment() -> dict[str, str]:
    """Return an environment without keys in which `costada` is on the path."""
    bin_folder = str(Path(sys.executable).parent)
    return {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "HOME": os.environ["HOME"]}


def output_of_script(script: Path, folder: Path) -> str:
    """Return what a script prints on both streams, as `python -W error SCRIPT` in a folder would.

    It is checked that the script ends well.
    """
    said, code = _end(_run_script, [str(script)], folder)
    assert code == 0, f"{script}\n{said}"
    return said


def end_of_command(words: Sequence[str], folder: Path) -> tuple[str, int]:
    """Return what a command prints on both streams, and its exit code.

    Args:
        words: The command, which has the name of the package that brings it, and its arguments.
        folder: Where it is run.
    """
    return _end(_run_command, list(words), folder)


def begun_command(words: Sequence[str], folder: Path, output: Path) -> ForkServerProcess:
    """Return the process of a command that writes both its streams to a file.

    Args:
        words: As for `end_of_command`.
        folder: Where it is run.
        output: The file, which exists.
    """
    return _begun(_run_command, list(words), folder, output)


def _end(run: Callable[[], object], argv: list[str], folder: Path) -> tuple[str, int]:
    with NamedTemporaryFile("r") as file:
        process = _begun(run, argv, folder, Path(file.name))
        process.join(PATIENCE_SECONDS)
        said = file.read()
    assert process.exitcode is not None, f"{shlex.join(argv)} goes on after {PATIENCE_SECONDS} s"
    return said, process.exitcode


def _begun(
    run: Callable[[], object], argv: list[str], folder: Path, output: Path
) -> ForkServerProcess:
    process: ForkServerProcess = PROCESSES.Process(
        target=_begin, args=(run, argv, str(folder), str(output))
    )
    process.start()
    return process


def _begin(run: Callable[[], object], argv: list[str], folder: str, output: str) -> None:
    fd = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.chdir(folder)
    environment = keyless_environment()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    run()


def _run_script() -> None:
    sys.path[0] = str(Path(sys.argv[0]).parent)
    multiprocessing.set_start_method(None, force=True)
    warnings.simplefilter("error")
    runpy.run_path(sys.argv[0], run_name="__main__")


def _run_command() -> None:
    name = sys.argv[0]
    sys.exit(distribution(name).entry_points[name].load()())
