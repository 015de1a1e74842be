"""The commands of problems: list, evaluate and check."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import isclose
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from costada.evaluators.consent import Confirmable, Needs
    from costada.evaluators.folder_settings import FolderSettings
    from costada.evaluators.folders import ProblemFolder
    from costada.evaluators.problem import Problem
    from costada.evaluators.sandbox.layers import Layer
    from costada.runs.single_evaluation import MeteredEvaluations
    from costada.values.evaluation import Evaluation

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
Facts = dict[str, str]
"""What is known of a folder, in the order of the screen."""

DENIED = ("Permission denied", "Operation not permitted", "Read-only file system")
"""What an error says where a layer refused something."""

SHOWN_NEEDS = "what `opens` says"
"""How a refusal names what the evaluator needs, which the screen shows."""

HAS_ANSWERS = " with this folder, so that candidates read its answers"
"""Follows a path that the sandbox opens and that holds the folder."""

MAX_FETCHED = 5
"""Files that were fetched are listed up to so many."""

MAX_UNSHOWN = 5
"""Texts of an evaluator that no prompt has room for are named up to so many."""

SHORT_SECONDS = 2.0
"""An initial program that takes no longer is evaluated twice."""


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
    from costada.evaluators.registry import problem_names

    facts: Facts = {}
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
            _confirm(folder, candidate_too=candidate_too)
        fault = _look(folder, wanted, facts)
    columns = get_terminal_size().columns if sys.stdout.isatty() else None
    screen = screen_text(folder, facts, columns)
    show(json.dumps(facts | {"fault": fault}, indent=2) if as_json else screen)
    if fault:
        say(fault)
        raise typer.Exit(ExitCode.BAD_INPUT)


def _confirm(folder: Path, *, candidate_too: bool) -> None:
    """Keep that the user confirms what the evaluator of a folder needs."""
    from costada.evaluators.consent import confirm
    from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
    from costada.evaluators.folders import read_folder
    from costada.evaluators.repository import repository_evaluator

    settings = read_settings(folder / SETTINGS_FILE)
    if settings.repository is not None:
        evaluator = repository_evaluator(_unconfirmed_repository(folder))
        if settings.needs:
            confirm(evaluator.folder, settings.needs, evaluator, candidate_too=candidate_too)
            return
    else:
        found = read_folder(folder)
        if found.needs:
            place = found.layout.folder
            confirm(place, found.needs, found.confirmable, candidate_too=candidate_too)
            return
    raise ValueError(
        f"--confirm: {folder} declares nothing to confirm; expected network, keys, gpus, docker, or"
        " private files as readable"
    )


def _look(folder: Path, wanted: RunConfig, facts: Facts) -> str | None:
    """Add facts about a folder as they become known; why a run would be refused, if it would."""
    from costada.evaluators.focus import with_focus
    from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
    from costada.evaluators.folders import load_folder, read_folder
    from costada.evaluators.problem import confine, gpu_note
    from costada.evaluators.repository import repository_evaluator
    from costada.runs.single_evaluation import MeteredEvaluations

    if read_settings(folder / SETTINGS_FILE).repository is None:
        found = read_folder(folder)
        missing = found.missing
        facts |= {**_parts(found), **missing.facts, **_further_parts(found)}
        if missing.refusal:
            return missing.refusal
        if fault := _consent(found, facts, _layer(wanted, found.settings, found.needs)):
            return fault
    else:
        unconfirmed = _unconfirmed_repository(folder)
        facts |= _repository_parts(unconfirmed)
        settings = repository_evaluator(unconfirmed).settings
        layer = _layer(wanted, settings, settings.needs)
        if fault := _consent_of_repository(unconfirmed, facts, layer):
            return fault
    facts |= _fetched(folder)
    problem = confine(
        load_folder(folder),
        sandbox=wanted.sandbox,
        timeout=wanted.timeout,
        memory_mb=wanted.memory_mb,
    )
    known = len(problem.notes)
    problem = with_focus(problem)
    if focus := problem.notes[known:]:
        facts["focus"] = " ".join(focus)
    facts |= _prompt(problem)
    if note := _block_note(problem):
        facts["block"] = note
    if note := gpu_note(problem):
        facts["gpus"] = note
    evaluations = MeteredEvaluations(problem, wanted)
    fault, evaluation = _evaluate_start(evaluations)
    facts |= _evaluation_facts(problem, evaluation) | _variation(evaluations, evaluation)
    if bill := evaluations.bill:
        facts["models"] = bill
    if fault and not evaluations.asks_models and (proposal := _other_layer(problem, wanted, fault)):
        facts["try"] = proposal
    return fault


def _block_note(problem: Problem) -> str | None:
    """What is wrong with the marks of the part that is meant to change; None if nothing is."""
    from costada.prompts.whole_texts import ANY_MARKS, BLOCK_END, BLOCK_START, cut_at_markers

    framed = cut_at_markers(problem.start.text, ANY_MARKS)
    if bool(framed.head) == bool(framed.tail):
        return None
    return f"expected {BLOCK_START} and below it {BLOCK_END}, found only one of them in this order"


def _layer(wanted: RunConfig, settings: FolderSettings, needs: Needs) -> Layer:
    """The layer of a check; AUTO where it decides nothing about a confirmation."""
    from costada.evaluators.sandbox.layer_choice import chosen_layer
    from costada.evaluators.sandbox.layers import Layer

    wanted_layer = wanted.sandbox or settings.sandbox
    return chosen_layer(wanted_layer) if needs.are_of_evaluator else Layer.AUTO


def _consent(found: ProblemFolder, facts: Facts, layer: Layer) -> str | None:
    """Add what a folder's evaluator is given; why it may not be, if it may not."""
    from costada.evaluators.folder_layout import IN_RUN

    process = "" if found.layout.contract in IN_RUN else "the evaluator's process"
    place = found.layout.folder
    return _confirmed(place, found.needs, found.confirmable, process, facts, layer)


def _confirmed(
    folder: Path, needs: Needs, evaluator: Confirmable, process: str, facts: Facts, layer: Layer
) -> str | None:
    """Add who has what the evaluator is given, and what that is; why it may not, if it may not.

    `process` says where the evaluator may run its candidate; empty if nowhere.
    """
    from costada.evaluators.consent import consent_fault
    from costada.evaluators.sandbox.layers import UNCONFINED

    if process and evaluator.runs_candidate():
        facts["candidate"] = f"may run in {process}, with the same access"
    elif needs.are_of_evaluator and layer in UNCONFINED:
        facts["candidate"] = f"has the evaluator's access: sandbox is {layer.value!r}"
    if needs:
        facts["opens"] = "; ".join(needs.described())
    return consent_fault(folder, needs, evaluator, layer, SHOWN_NEEDS)


def _unconfirmed_repository(folder: Path) -> Problem:
    """The problem of a folder with a repository, whatever of it is confirmed."""
    from costada.evaluators.folder_layout import TASK_FILE
    from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
    from costada.evaluators.initial_program import read_text
    from costada.evaluators.repository import load_repository

    place = folder.resolve()
    task = read_text(place / TASK_FILE, place)
    return load_repository(place, read_settings(place / SETTINGS_FILE), task)


def _consent_of_repository(problem: Problem, facts: Facts, layer: Layer) -> str | None:
    """The same of a folder with a repository."""
    from costada.evaluators.repository import repository_evaluator

    evaluator = repository_evaluator(problem)
    needs = evaluator.settings.needs
    process = "the process of the command"
    return _confirmed(evaluator.folder, needs, evaluator, process, facts, layer)


def _parts(found: ProblemFolder) -> Facts:
    """Layout, contract and language, which are known without running anything."""
    from costada.evaluators.folder_layout import IN_RUN, NATIVE, Contract, defined_names
    from costada.evaluators.initial_program import other_programs, program_place

    layout, program = found.layout, found.program
    has_both = layout.contract not in IN_RUN and NATIVE in defined_names(layout.source)
    unused = f"; a run does not call {Contract.SCORE.value}" if has_both else ""
    evaluator = layout.evaluator.relative_to(layout.folder)
    config = [layout.config.path.name] if layout.config.path else []
    texts = Program.of(program.source or "").values()
    size = f"{sum(map(len, texts)):,} characters" if program.source else "not written yet"
    files = f", {_num_files(len(texts))}" if isinstance(program.source, dict) else ""
    start = "" if program.source is None else program_place(layout.folder)
    others = other_programs(layout.folder, start) if start else []
    taken = [f"{start} (not {', '.join(others)})" if others else start] if start else []
    return {
        "layout": ", ".join([str(evaluator), *taken, *config]),
        "contract": layout.contract.value + unused,
        "language": f"{program.language}{files}, {size}",
    }


def _further_parts(found: ProblemFolder) -> Facts:
    """What else a folder reads and does not, and what was taken over of a configuration."""
    from costada.evaluators.folder_layout import IN_RUN
    from costada.evaluators.folders import notes_on_start

    layout, helpers = found.layout, []
    if layout.contract not in IN_RUN:
        shown = layout.evaluator_file(found.settings).shown()
        helpers = [str(path) for path in shown if not path.is_relative_to(layout.folder)]
    facts = _elsewhere([*helpers, *_shown_readable(found.settings.readable, layout.folder)])
    for number, note in enumerate(layout.config.notes, start=1):
        facts["settings" if number == 1 else f"settings {number}"] = note
    if found.settings.start and (notes := notes_on_start(found)):
        facts["not read"] = " ".join(notes)
    return facts


def _repository_parts(problem: Problem) -> Facts:
    """The same of a folder that names a repository; what its command needs shows when it runs."""
    from costada.evaluators.environment import environment_folder
    from costada.evaluators.repository import repository_evaluator

    evaluator = repository_evaluator(problem)
    place = str(environment_folder(evaluator.folder)) if problem.interpreter else "installed here"
    size = f"{sum(map(len, problem.start.values())):,} characters"
    facts = {
        "layout": f"repository {evaluator.base.repository.root}",
        "copies": f"{_num_files(len(evaluator.base.paths))} besides the candidate's",
        "contract": f"last line or JSON of {evaluator.settings.command}",
        "language": f"{problem.language}, {_num_files(len(problem.start))}, {size}",
        "needs": f"what the command needs ({place})",
    }
    facts |= _elsewhere(_shown_readable(problem.readable, evaluator.folder))
    for number, note in enumerate(problem.notes, start=1):
        facts["note" if number == 1 else f"note {number}"] = note
    return facts


def _elsewhere(paths: Iterable[str]) -> Facts:
    """What may be read outside of the folder, for a reader who did not write its settings."""
    named = ", ".join(paths)
    return {"also reads": named} if named else {}


def _shown_readable(patterns: Iterable[str], folder: Path) -> Iterator[str]:
    """Paths that the sandbox opens, each with what it leads to where its text does not say that."""
    from costada.evaluators.sandbox.slot_kind import readable_paths

    for pattern in patterns:
        found = readable_paths([pattern])
        leads_to = f" ({found[0]})" if len(found) == 1 and found[0] != pattern else ""
        has_folder = any(folder.is_relative_to(path) for path in found)
        yield f"{pattern}{leads_to}{HAS_ANSWERS if has_folder else ''}"


def _fetched(folder: Path) -> Facts:
    """The files that the folder's command has downloaded."""
    from costada.evaluators.fetched_files import fetched_files

    files = fetched_files(folder)
    parts = [f"{each.path} ({each.size:,} bytes)" for each in files[:MAX_FETCHED]]
    if len(files) > MAX_FETCHED:
        size = sum(each.size for each in files)
        parts.append(f"{len(files) - MAX_FETCHED:,} more, {size:,} bytes in all")
    return {"fetched": ", ".join(parts)} if parts else {}


def _num_files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"


def _prompt(problem: Problem) -> Facts:
    """The size of the prompt for the first program, and of an ordinary one."""
    from costada.controller.constants import Constants
    from costada.nodes.attempts import first_prompt, ordinary_input
    from costada.nodes.calls.bounds import EXPECTED_PROGRAM, prompt_tokens

    prompt, constants = first_prompt(problem), Constants()
    characters = len(prompt.system) + len(prompt.user)
    short = ordinary_input(problem, constants, shortest=0)
    grown = ordinary_input(problem, constants)
    if problem.initial_program is None:
        short = grown
    later = f"about {short:,} tokens, with {constants.num_inspirations} other programs"
    if short < grown:
        later += f"; {grown:,} if programs grow to {EXPECTED_PROGRAM:,} tokens"
    return {
        "first prompt": f"about {prompt_tokens(prompt):,} tokens, {characters:,} characters",
        "later prompt": later,
    }


def _evaluate_start(evaluations: MeteredEvaluations) -> tuple[str | None, Evaluation]:
    """The evaluation of the initial program, and why a run would be refused, if it would."""
    from dataclasses import replace

    from costada.evaluators.problem import check_problem

    problem = evaluations.problem
    if problem.initial_program is None:
        return None, check_problem(problem)
    evaluation = evaluations.evaluate(problem.start)
    try:
        check_problem(replace(problem, seed_evaluation=evaluation))
    except ValueError as error:
        return str(error), evaluation
    return None, evaluation


def _other_layer(problem: Problem, wanted: RunConfig, fault: str) -> str:
    """A layer that allows what the problem's layer refused; empty if none is known to.

    Only layers that confine as much are tried: the folder may be somebody else's.
    """
    from costada.evaluators.problem import confine, layer_of
    from costada.evaluators.sandbox.layers import UNCONFINED, WITH_FILESYSTEM, Layer
    from costada.evaluators.setup_hints import NO_MODES, SHARED_HINT
    from costada.runs.single_evaluation import MeteredEvaluations

    layer = layer_of(problem)
    if layer in (None, *UNCONFINED) or not any(map(fault.__contains__, DENIED)):
        return ""
    for other in WITH_FILESYSTEM:
        with suppress(ValueError):  # not offered by this machine
            elsewhere = MeteredEvaluations(confine(problem, sandbox=other), wanted)
            if other is not layer and not _evaluate_start(elsewhere)[0]:
                return f"--sandbox {other.value}: there, the initial program is valid"
    if not any(map(fault.__contains__, (NO_MODES, SHARED_HINT))):
        return ""
    return (
        f"--sandbox {Layer.PROCESS.value}, not tried, as its programs can read your files and use"
        " the network"
    )


def _evaluation_facts(problem: Problem, evaluation: Evaluation) -> Facts:
    from costada.evaluators.folder_evaluators import last_stage, reported_error
    from costada.evaluators.maximised import maximised_number
    from costada.evaluators.problem import layer_of
    from costada.evaluators.sandbox.layer_choice import described_layer

    layer = layer_of(problem)
    if problem.initial_program is None:
        confined = {"sandbox": described_layer(layer)} if layer else {}
        start = "none, the first attempts write it; the evaluator was not tried"
        return {**confined, "start": start}
    objective = evaluation.objective
    worth = "" if objective in (None, evaluation.score) else f" (objective {objective:.10g})"
    facts = {
        "sandbox": described_layer(layer) if layer else "up to the problem",
        "evaluation": f"{evaluation.seconds:.3f} s (timeout {problem.limits.wall_seconds:g} s)",
        "start": f"score {evaluation.score:.10g}{worth}" if evaluation.is_valid else "not valid",
    }
    if not evaluation.is_valid:
        return facts
    facts["maximises"] = maximised_number(problem, evaluation)
    if evaluation.examples:
        facts["maximises"] = "the mean score over the examples"
        facts["examples"] = f"{len(evaluation.examples)}, {len(evaluation.validation)} to validate"
        if worthless := [each for each in evaluation.examples if not each.score]:
            first = worthless[0]
            why = "".join(first.feedback.splitlines()[:1])
            facts["examples"] += f"; score 0 on {len(worthless)}, as on [{first.place}] {why}"
    returned = {*evaluation.metrics, *evaluation.artifacts}
    if absent := [name for name in problem.timing_metrics if name not in returned]:
        facts["timings"] = f"timing_metrics names {', '.join(absent)}, which was not returned"
    facts["prompts show"] = _shown_in_prompts(problem, evaluation)
    if said := reported_error(evaluation.artifacts):
        facts["error"] = f"{said} (returned beside the score)"
    if ended := last_stage(evaluation.artifacts):
        facts["stages"] = f"{ended.splitlines()[0]}; the score is that of the stages so far"
    return facts


def _shown_in_prompts(problem: Problem, evaluation: Evaluation) -> str:
    """What of an evaluator's answer a prompt about its program holds, the most useful first."""
    from costada.evaluators.sandbox.inside.evaluator_contracts import MAX_ARTIFACT_CHARS
    from costada.nodes.context import prompt_view
    from costada.prompts.render import MAX_METRICS, TEXT_LIMIT, fitting_outputs
    from costada.store.candidates import SEED_ID
    from costada.values.candidate import Candidate
    from costada.values.evaluation import FEEDBACK

    view = prompt_view(Candidate.from_evaluation(SEED_ID, problem.start, evaluation, ""), problem)
    names = [*view.metrics]
    more = f" and {len(names) - MAX_METRICS} more not" if len(names) > MAX_METRICS else ""
    parts = ["score", *([f"{', '.join(names[:MAX_METRICS])}{more}"] if names else [])]
    feedback = {FEEDBACK: view.feedback} if view.feedback else {}
    shown = feedback | fitting_outputs(view.notes)
    for name, text in shown.items():
        size = f"{len(text):,}{' or more' if len(text) >= MAX_ARTIFACT_CHARS else ''}"
        size = f"{TEXT_LIMIT:,} of {size}" if len(text) > TEXT_LIMIT else size
        parts.append(f"{name} ({size} characters)")
    if unshown := [name for name in view.artifacts if name not in shown]:
        parts.append(f"{len(unshown)} more texts do not fit: {', '.join(unshown[:MAX_UNSHOWN])}")
    return "; ".join(parts)


def _variation(evaluations: MeteredEvaluations, first: Evaluation) -> Facts:
    """Whether a short second evaluation that costs nothing scores the start differently."""
    problem = evaluations.problem
    is_known = not first.is_valid or problem.repeats > 1 or first.seconds > SHORT_SECONDS
    if is_known or evaluations.asks_models:
        return {}
    second = problem.evaluate_program(problem.start)
    if not second.is_valid or isclose(first.score, second.score):
        return {}
    low, high = sorted([first.score, second.score])
    return {"noise": f"score varies from {low:.10g} to {high:.10g}: see repeats in problem.toml"}


def screen_text(folder: Path, facts: Mapping[str, str], columns: int | None) -> str:
    """One line for each fact, which breaks between words where a terminal has so many columns."""
    width = max(map(len, facts))
    lines = [f"  {name:<{width}}  {printable_line(text)}" for name, text in facts.items()]
    if columns is not None:
        indent = " " * (width + 4)
        wrap = partial(fill, width=columns, subsequent_indent=indent, break_on_hyphens=False)
        lines = [wrap(line, break_long_words=False) for line in lines]
    return "\n".join([str(folder), *lines])
