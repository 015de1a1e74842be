"""The commands of problems: list, evaluate and check."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import keeping_output_clean, refusing, say, showing_warnings
from costada.cli.setting_options import with_settings
from costada.reports.terminal import printable_line, show
from costada.runs.config import RunConfig
from costada.runs.interruption import ExitCode, ending_on_signal
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation, failed
from costada.values.program_form import ProgramForm

ProblemName = Annotated[
    str,
    typer.Argument(metavar="PROBLEM", help=RunConfig.model_fields["problem"].description),
]
ProgramPath = Annotated[
    Path,
    typer.Argument(
        parser=options.named_path, metavar="FILE", help="A program: its file, or its folder."
    ),
]
COLUMNS = ("name", "direction", "seed", "reference", "human")
WORD_COLUMNS = ("name", "direction")
OPTIONAL_COLUMNS = ("direction", "seed", "human")
"""Columns that a narrow terminal omits, in this order."""

LEGEND = (
    "Objectives of the seed program, of score 1 (reference), and the best by people (human)."
    "\nA folder can be a problem too: costada init DIR writes one."
)


def list_problems(as_json: options.AsJson = False) -> None:
    """List the benchmarks that come with the package."""
    from costada.evaluators.registry import benchmark_settings, problem_names
    from costada.reports.terminal import TerminalTable, table_console

    facts = []
    for name in problem_names():
        settings = benchmark_settings(name)
        facts.append(
            {
                "name": name,
                "direction": settings.direction.value,
                "seed": settings.seed_objective,
                "reference": settings.reference,
                "human": settings.human,
                "entry_point": settings.entry_point,
                "timeout": settings.timeout,
                "source": settings.source,
            }
        )
    if as_json:
        show(json.dumps(facts, indent=2))
        return
    rows = [[_cell(each[heading]) for heading in COLUMNS] for each in facts]
    alternatives = "--json or a wider terminal"
    table = TerminalTable(COLUMNS, rows, WORD_COLUMNS, OPTIONAL_COLUMNS, alternatives=alternatives)
    console = table_console()
    table.print(console)
    console.print(LEGEND)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float | int) else str(value)


def _read_program(path: Path, form: ProgramForm) -> Program | Evaluation:
    """The program in a file or folder, or the evaluation of a file that is not text."""
    from costada.evaluators.initial_program import files_in
    from costada.store.files import read_bytes

    if not form.is_one_text:
        if not path.is_dir():
            raise ValueError(
                f"{path}: is not a folder; programs of this problem have several files"
            )
        files = files_in(path, form.allows)
        if not files:
            wanted = ", ".join(form.patterns or form.paths)
            raise ValueError(f"{path}: holds no file of a program, expected some of {wanted}")
        return Program.of(files)
    try:
        return Program.of(read_bytes(path).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return failed(f"the program is not UTF-8 text: {error}")


@with_settings("sandbox", "timeout", "memory_mb", from_file=False)
def evaluate(
    problem: ProblemName,
    file: ProgramPath,
    settings: Callable[[], dict[str, Any]],
    as_json: options.AsJson = False,
) -> None:
    """Score a program as a run would. A program that fails gets score 0 and exit code 0.

    Prints what it cost where the evaluator or the program asks models.
    """
    from costada.evaluators.problem import confine, layer_of
    from costada.evaluators.registry import problem as problem_named
    from costada.reports.summary import evaluation_json, evaluation_text
    from costada.runs.single_evaluation import MeteredEvaluations
    from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT

    with (
        refusing(ExitCode.BAD_INPUT),
        ending_on_signal(),
        showing_warnings(),
        keeping_output_clean(),
    ):
        wanted = RunConfig.model_validate({"problem": problem, **settings()})
        found = confine(
            problem_named(problem),
            sandbox=wanted.sandbox,
            timeout=wanted.timeout,
            memory_mb=wanted.memory_mb,
        )
        program = _read_program(file, found.form)
    for note in found.notes:
        say(note)
    with refusing(ExitCode.FAILED), ending_on_signal(), keeping_output_clean():
        evaluations = MeteredEvaluations(found, wanted)
        evaluation = program if isinstance(program, Evaluation) else evaluations.evaluate(program)
    if bill := evaluations.bill:
        say(f"models: {bill}")
    show((evaluation_json if as_json else evaluation_text)(evaluation, layer_of(found)))
    if {EVALUATOR_FAULT, SANDBOX_FAULT} & evaluation.artifacts.keys():
        raise typer.Exit(ExitCode.FAILED)


ProblemPath = Annotated[
    Path,
    typer.Argument(parser=options.named_path, metavar="DIR", help="A problem folder."),
]
Confirm = Annotated[
    bool,
    typer.Option(
        "--confirm",
        help="Confirm what problem.toml declares for the evaluator, with its files as they are"
        " now.",
    ),
]
CandidateToo = Annotated[
    bool,
    typer.Option(
        "--candidate-too",
        help="With --confirm: for candidates too, where the evaluator may import them, or sandbox"
        " is process or none.",
    ),
]


@with_settings("sandbox", "timeout", "memory_mb", from_file=False)
def check(
    folder: ProblemPath,
    settings: Callable[[], dict[str, Any]],
    as_json: options.AsJson = False,
    confirm: Confirm = False,
    candidate_too: CandidateToo = False,
) -> None:
    """Print what a problem folder contains and needs, and evaluate its initial program.

    An initial program that takes less than 2 s is evaluated twice, to see whether its score varies.
    Makes no model calls but those of an evaluator or a program that asks models: once, and their
    cost is printed. Exits with 2 if a run of the folder would be refused.
    """
    from costada.cli.problem_check import check_folder, confirm_needs
    from costada.evaluators.registry import problem_names

    facts: dict[str, str] = {}
    with (
        refusing(ExitCode.BAD_INPUT),
        ending_on_signal(),
        showing_warnings(),
        keeping_output_clean(),
    ):
        wanted = RunConfig.model_validate({"problem": str(folder), **settings()})
        if candidate_too and not confirm:
            raise ValueError("--candidate-too: expected --confirm with it, which it extends")
        if str(folder) in problem_names() and not folder.exists():
            raise ValueError(f"{folder}: is a benchmark, which needs no check; expected a folder")
        if confirm:
            confirm_needs(folder, candidate_too=candidate_too)
        fault = check_folder(folder, wanted, facts)
    columns = get_terminal_size().columns if sys.stdout.isatty() else None
    screen = screen_text(folder, facts, columns)
    show(json.dumps(facts | {"fault": fault}, indent=2) if as_json else screen)
    if fault:
        say(fault)
        raise typer.Exit(ExitCode.BAD_INPUT)


def screen_text(folder: Path, facts: Mapping[str, str], columns: int | None) -> str:
    """One line for each fact, which breaks between words where a terminal has so many columns."""
    width = max(map(len, facts))
    lines = [f"  {name:<{width}}  {printable_line(text)}" for name, text in facts.items()]
    if columns is not None:
        indent = " " * (width + 4)
        wrap = partial(fill, width=columns, subsequent_indent=indent, break_on_hyphens=False)
        lines = [wrap(line, break_long_words=False) for line in lines]
    return "\n".join([str(folder), *lines])
