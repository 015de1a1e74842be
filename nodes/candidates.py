"""Candidates on their way between the store, the archives and a prompt."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from costada.controller.archive import Archive, Candidate
from costada.controller.method import Archiving
from costada.controller.migration import original_id
from costada.evaluators.problem import Problem
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState, StepRecord
from costada.prompts.render import Prompt
from costada.prompts.requests import ShownProgram
from costada.store.rows import CandidateRow
from costada.values.evaluation import EVAL_TIME, EVALUATOR_FAULT, MARKS, SANDBOX_FAULT, Evaluation
from costada.values.prompt_data import PromptData


def load_archives(state: SearchState, context: RunContext) -> tuple[Archive, ...]:
    """The archive of every frontier (D^(k)) as of the state's `archive_seq`.

    None for a method that does not draw its parents from archives.
    """
    controller = state["controller"]
    if not isinstance(controller, Archiving):
        return ()
    return tuple(
        Archive(
            members=tuple(
                to_candidate(row)
                for row in context.store.candidates.archive(
                    state["run_id"], frontier, state["archive_seq"]
                )
            ),
            size=context.settings.constants.archive_size,
            weights=weights,
        )
        for frontier, weights in enumerate(controller.archive_weights)
    )


def save_archive(archive: Archive, frontier: int, state: SearchState, context: RunContext) -> None:
    """Store the membership of a frontier's archive as of the state's `archive_seq`."""
    ids = [member.id for member in archive.members]
    context.store.candidates.put_archive(state["run_id"], frontier, state["archive_seq"], ids)


def save_changes(
    before: tuple[Archive, ...],
    after: tuple[Archive, ...],
    state: SearchState,
    context: RunContext,
) -> None:
    """Store the archives that a step changed, as the next `archive_seq`, and their migrants."""
    changed = SearchState(**{**state, "archive_seq": state["archive_seq"] + 1})
    for frontier, archive in enumerate(after):
        if archive not in before[frontier : frontier + 1]:
            _save_migrants(archive, state, context)
            save_archive(archive, frontier, changed, context)


def _save_migrants(archive: Archive, state: SearchState, context: RunContext) -> None:
    store = context.store.candidates
    for member in archive.members:
        if member.id != original_id(member.id) and member.iteration == state["iteration"]:
            original = store.get(state["run_id"], original_id(member.id))
            copy = replace(
                original,
                id=member.id,
                parent_id=member.parent_id,
                iteration=member.iteration,
                is_copy=True,
            )
            store.put(state["run_id"], copy)


def load_candidate(candidate_id: str, state: SearchState, context: RunContext) -> Candidate:
    """Return one stored candidate."""
    return to_candidate(context.store.candidates.get(state["run_id"], candidate_id))


def to_candidate(row: CandidateRow) -> Candidate:
    """Return what an archive keeps of a stored candidate."""
    return Candidate(
        id=row.id,
        code=row.code,
        score=row.score,
        parent_id=row.parent_id,
        iteration=row.iteration,
        generation=row.generation,
        metrics=row.metrics,
        artifacts=row.artifacts,
        changes=row.changes,
        error=row.error,
    )


def shown(candidate: Candidate, problem: Problem) -> ShownProgram:
    """Return what a prompt shows of a candidate; marks stay out, for they repeat the error."""
    return ShownProgram(
        code=candidate.code,
        score=candidate.score,
        metrics=lasting_metrics(candidate.metrics, problem),
        artifacts={name: text for name, text in candidate.artifacts.items() if name not in MARKS},
        error=candidate.error,
    )


def lasting_metrics(metrics: Mapping[str, float], problem: Problem) -> dict[str, float]:
    """Return the metrics without wall-clock times: they never repeat, and so no prompt would."""
    timings = {EVAL_TIME, *problem.timing_metrics}
    return {name: value for name, value in metrics.items() if name not in timings}


def save_prompt(prompt: Prompt, context: RunContext) -> tuple[str, str]:
    """Store the text of a step's prompt and what it was made of; returns both hashes."""
    put_text = context.store.put_text
    if prompt.data is None:
        return put_text(prompt.user), ""
    others = tuple(map(put_text, prompt.data.others))
    data = replace(prompt.data, program=put_text(prompt.data.program), others=others)
    return put_text(prompt.user), put_text(json.dumps(asdict(data)))


def load_prompt(step: StepRecord, context: RunContext) -> Prompt:
    """The prompt of the step's attempt."""
    text = context.store.text
    data = PromptData(**json.loads(text(step["prompt_data"])))
    others = tuple(map(text, data.others))
    data = replace(data, program=text(data.program), others=others)
    return Prompt(context.problem.task, text(step["prompt"]), data)


def evaluation_of(row: CandidateRow) -> Evaluation:
    """Return the verdict that a stored candidate got."""
    return Evaluation(
        score=row.score,
        objective=row.objective,
        is_valid=row.is_valid,
        metrics=row.metrics,
        error=row.error,
        artifacts=row.artifacts,
    )


def candidate_row(
    candidate_id: str,
    iteration: int,
    code: str,
    evaluation: Evaluation,
    evaluator: str,
    *,
    parent_id: str | None = None,
    generation: int = 0,
    changes: str = "",
    inspirations: Sequence[str] = (),
    label: str = "",
) -> CandidateRow:
    """Return an evaluated program as the store keeps it.

    `evaluator` is the fingerprint of what judged it. A verdict that came of a fault is not kept
    for further candidates with the same program.
    """
    is_final = not {EVALUATOR_FAULT, SANDBOX_FAULT} & evaluation.artifacts.keys()
    return CandidateRow(
        id=candidate_id,
        iteration=iteration,
        code=code,
        score=evaluation.score,
        objective=evaluation.objective,
        is_valid=evaluation.is_valid,
        metrics=dict(evaluation.metrics),
        artifacts=dict(evaluation.artifacts),
        error=evaluation.error,
        parent_id=parent_id,
        generation=generation,
        changes=changes,
        evaluator=evaluator if is_final else "",
        inspirations=tuple(inspirations),
        label=label,
    )
