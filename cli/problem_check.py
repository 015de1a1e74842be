"""What a run of a problem folder would find: what is missing, not confirmed, or refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import isclose
from pathlib import Path

from costada.cli.problem_facts import (
    Facts,
    block_note,
    evaluation_facts,
    fetched_facts,
    folder_facts,
    further_facts,
    prompt_facts,
    repository_facts,
)
from costada.evaluators.consent import Confirmable, Needs, confirm, consent_fault
from costada.evaluators.focus import with_focus
from costada.evaluators.folder_layout import IN_RUN, TASK_FILE
from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings, read_settings
from costada.evaluators.folders import load_folder, read_folder
from costada.evaluators.initial_program import read_text
from costada.evaluators.problem import Problem, check_problem, confine, gpu_note, layer_of
from costada.evaluators.repository import load_repository, repository_evaluator
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import UNCONFINED, WITH_FILESYSTEM, Layer
from costada.evaluators.setup_hints import NO_MODES, SHARED_HINT
from costada.runs.config import RunConfig
from costada.runs.single_evaluation import MeteredEvaluations
from costada.values.evaluation import Evaluation

DENIED = ("Permission denied", "Operation not permitted", "Read-only file system")
"""What an error says where a layer refused something."""

SHOWN_NEEDS = "what `opens` says"
"""How a refusal names what the evaluator needs, which the screen shows."""

SHORT_SECONDS = 2.0
"""An initial program that takes no longer is evaluated twice."""


def confirm_needs(folder: Path, *, candidate_too: bool) -> None:
    """Keep that the user confirms what the evaluator of a folder needs."""
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


def check_folder(folder: Path, wanted: RunConfig, facts: Facts) -> str | None:
    """Add facts about a folder as they become known; why a run would be refused, if it would."""
    if read_settings(folder / SETTINGS_FILE).repository is None:
        found = read_folder(folder)
        missing = found.missing
        facts |= {**folder_facts(found), **missing.facts, **further_facts(found)}
        if missing.refusal:
            return missing.refusal
        process = "" if found.layout.contract in IN_RUN else "the evaluator's process"
        layer = _layer(wanted, found.settings, found.needs)
        place, evaluator = found.layout.folder, found.confirmable
        if fault := _consent(place, found.needs, evaluator, process, facts, layer):
            return fault
    else:
        unconfirmed = _unconfirmed_repository(folder)
        facts |= repository_facts(unconfirmed)
        command = repository_evaluator(unconfirmed)
        needs, process = command.settings.needs, "the process of the command"
        layer = _layer(wanted, command.settings, needs)
        if fault := _consent(command.folder, needs, command, process, facts, layer):
            return fault
    facts |= fetched_facts(folder)
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
    facts |= prompt_facts(problem)
    if note := block_note(problem):
        facts["block"] = note
    if note := gpu_note(problem):
        facts["gpus"] = note
    evaluations = MeteredEvaluations(problem, wanted)
    fault, evaluation = _evaluate_start(evaluations)
    facts |= evaluation_facts(problem, evaluation) | _variation(evaluations, evaluation)
    if bill := evaluations.bill:
        facts["models"] = bill
    if fault and not evaluations.asks_models and (proposal := _other_layer(problem, wanted, fault)):
        facts["try"] = proposal
    return fault


def _layer(wanted: RunConfig, settings: FolderSettings, needs: Needs) -> Layer:
    """The layer of a check; AUTO where it decides nothing about a confirmation."""
    wanted_layer = wanted.sandbox or settings.sandbox
    return chosen_layer(wanted_layer) if needs.are_of_evaluator else Layer.AUTO


def _consent(
    folder: Path, needs: Needs, evaluator: Confirmable, process: str, facts: Facts, layer: Layer
) -> str | None:
    """Add who has what the evaluator is given, and what that is; why it may not, if it may not.

    `process` says where the evaluator may run its candidate; empty if nowhere.
    """
    if process and evaluator.runs_candidate():
        facts["candidate"] = f"may run in {process}, with the same access"
    elif needs.are_of_evaluator and layer in UNCONFINED:
        facts["candidate"] = f"has the evaluator's access: sandbox is {layer.value!r}"
    if needs:
        facts["opens"] = "; ".join(needs.described())
    return consent_fault(folder, needs, evaluator, layer, SHOWN_NEEDS)


def _unconfirmed_repository(folder: Path) -> Problem:
    """The problem of a folder with a repository, whatever of it is confirmed."""
    place = folder.resolve()
    task = read_text(place / TASK_FILE, place)
    return load_repository(place, read_settings(place / SETTINGS_FILE), task)


def _evaluate_start(evaluations: MeteredEvaluations) -> tuple[str | None, Evaluation]:
    """The evaluation of the initial program, and why a run would be refused, if it would."""
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
