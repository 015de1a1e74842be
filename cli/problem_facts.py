"""What a problem folder contains and what its evaluator returned, as a check shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from costada.controller.constants import Constants
from costada.evaluators.environment import environment_folder
from costada.evaluators.fetched_files import fetched_files
from costada.evaluators.folder_evaluators import last_stage, reported_error
from costada.evaluators.folder_layout import IN_RUN, NATIVE, Contract, defined_names
from costada.evaluators.folders import ProblemFolder, notes_on_start
from costada.evaluators.initial_program import other_programs, program_place
from costada.evaluators.maximised import maximised_number
from costada.evaluators.problem import Problem, layer_of
from costada.evaluators.repository import repository_evaluator
from costada.evaluators.sandbox.inside.evaluator_contracts import MAX_ARTIFACT_CHARS
from costada.evaluators.sandbox.layer_choice import described_layer
from costada.evaluators.sandbox.slot_kind import readable_paths
from costada.nodes.attempts import first_prompt, ordinary_input
from costada.nodes.calls.bounds import EXPECTED_PROGRAM, prompt_tokens
from costada.nodes.context import prompt_view
from costada.prompts.render import MAX_METRICS, TEXT_LIMIT, fitting_outputs
from costada.prompts.whole_texts import ANY_MARKS, BLOCK_END, BLOCK_START, cut_at_markers
from costada.store.candidates import SEED_ID
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import FEEDBACK, Evaluation

Facts = dict[str, str]
"""What is known of a folder, in the order of the screen."""

HAS_ANSWERS = " with this folder, so that candidates read its answers"
"""Follows a path that the sandbox opens and that holds the folder."""

MAX_FETCHED = 5
"""Files that were fetched are listed up to so many."""

MAX_UNSHOWN = 5
"""Texts of an evaluator that no prompt has room for are named up to so many."""


def block_note(problem: Problem) -> str | None:
    """What is wrong with the marks of the part that is meant to change; None if nothing is."""
    framed = cut_at_markers(problem.start.text, ANY_MARKS)
    if bool(framed.head) == bool(framed.tail):
        return None
    return f"expected {BLOCK_START} and below it {BLOCK_END}, found only one of them in this order"


def folder_facts(found: ProblemFolder) -> Facts:
    """Layout, contract and language, which are known without running anything."""
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


def further_facts(found: ProblemFolder) -> Facts:
    """What else a folder reads and does not, and what was taken over of a configuration."""
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


def repository_facts(problem: Problem) -> Facts:
    """The same of a folder that names a repository; what its command needs shows when it runs."""
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
    for pattern in patterns:
        found = readable_paths([pattern])
        leads_to = f" ({found[0]})" if len(found) == 1 and found[0] != pattern else ""
        has_folder = any(folder.is_relative_to(path) for path in found)
        yield f"{pattern}{leads_to}{HAS_ANSWERS if has_folder else ''}"


def fetched_facts(folder: Path) -> Facts:
    """The files that the folder's command has downloaded."""
    files = fetched_files(folder)
    parts = [f"{each.path} ({each.size:,} bytes)" for each in files[:MAX_FETCHED]]
    if len(files) > MAX_FETCHED:
        size = sum(each.size for each in files)
        parts.append(f"{len(files) - MAX_FETCHED:,} more, {size:,} bytes in all")
    return {"fetched": ", ".join(parts)} if parts else {}


def _num_files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"


def prompt_facts(problem: Problem) -> Facts:
    """The size of the prompt for the first program, and of an ordinary one."""
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


def evaluation_facts(problem: Problem, evaluation: Evaluation) -> Facts:
    """Where the initial program was evaluated, what was returned, and what prompts show of it."""
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
