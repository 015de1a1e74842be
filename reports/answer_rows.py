"""The raw answers of a run and what their prompts showed, as `--model replay:FILE` reads them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from costada.models.reply_content import MESSAGE_MARK
from costada.nodes.generator_command import ONE_ANSWER
from costada.store.candidates import SEED_ID
from costada.store.history import PastCall, PastCandidate, RunHistory, Tickets
from costada.store.rows import CallStatus
from costada.values.numbering import START, Iteration, TicketNumber
from costada.values.roles import GENERATION, GUIDE, RETRY

SEED_KIND, PROPOSAL_KIND, GUIDE_KIND = "seed", "proposal", "guide"

_PARENT = re.compile(r"^# Current program assessment\n\nScore: (-?\d+\.\d+)$", re.MULTILINE)
_OTHER = re.compile(r"^## Program \d+\n\nScore: (-?\d+\.\d+)$", re.MULTILINE)
_BEST = re.compile(r"^# Best program\n\nScore: (-?\d+\.\d+)$", re.MULTILINE)
_TACTIC = re.compile(r"^## Tactic$", re.MULTILINE)
"""Headings of the templates `generate.txt` and `guide.txt`."""

_FENCED = re.compile(r"^(?P<ticks>`{3,})[^`\n]*\n.*?^(?P=ticks)$", re.MULTILINE | re.DOTALL)
"""What a template quotes: programs, and words of evaluators and models. Nothing in it ends it."""


def check_answers(history: RunHistory, run_id: str) -> None:
    """Raise `ValueError` unless each program of a run is one answer."""
    setup = history.setup(run_id)
    generator = setup.settings.get("generator", ONE_ANSWER) if setup else ONE_ANSWER
    if generator != ONE_ANSWER:
        raise ValueError(
            f"table answers: the run has generator {generator!r}, of whose answers none is a"
            f" program; expected a run with generator {ONE_ANSWER!r}"
        )


def answer_rows(
    history: RunHistory, run_id: str, iterations: Mapping[TicketNumber, Iteration]
) -> Iterator[dict[str, Any]]:
    """The initial program, then each answer to a prompt for a program or for tactics.

    Scores of parents and contexts are those printed in the prompts, so they are known of answers
    without a program too. Answers that call tools are left out.
    """
    candidates = {each.id: each for each in history.candidates(Tickets(run_id))}
    if seed := candidates.get(SEED_ID):
        history.begin_part()
        row = {"run": run_id, "kind": SEED_KIND, "id": SEED_ID, "iteration": START}
        yield row | _outcome(seed, history)
    for call in history.calls(Tickets(run_id)):
        if call.status is not CallStatus.DONE or call.role not in (GENERATION, RETRY, GUIDE):
            continue
        history.begin_part()
        response = history.text(call.answer)
        if MESSAGE_MARK in response:
            continue
        row = {
            "run": run_id,
            "iteration": iterations.get(call.ticket),
            "role": call.role,
            "model": call.facts.get("model"),
            "response": response,
            "finish_reason": call.facts.get("finish_reason"),
            "prompt_tokens": call.facts.get("input_tokens"),
            "completion_tokens": call.facts.get("output_tokens"),
            "cost": call.cost,
        }
        prompt = _FENCED.sub("", history.text(call.prompt))
        if call.role == GUIDE:
            yield row | {"kind": GUIDE_KIND, "parent_score": _last(_BEST, prompt)}
        else:
            yield row | _proposal(call, prompt, candidates, history)


def _proposal(
    call: PastCall, prompt: str, candidates: Mapping[str, PastCandidate], history: RunHistory
) -> dict[str, Any]:
    name = f"{call.ticket}.{call.attempt}"
    others = [float(score) for score in _OTHER.findall(prompt)]
    candidate = candidates.get(name)
    outcome = {"valid": False} if candidate is None else _outcome(candidate, history)
    return {
        "kind": PROPOSAL_KIND,
        "id": name,
        "guided": _TACTIC.search(prompt) is not None,
        "parent_score": _last(_PARENT, prompt),
        "n_context": len(others),
        "best_context_score": max(others, default=None),
        **outcome,
    }


def _outcome(candidate: PastCandidate, history: RunHistory) -> dict[str, Any]:
    facts = {
        name: candidate.facts.get(name) for name in ("parent_id", "score", "objective", "error")
    }
    program = history.program(candidate.program)
    return {**facts, "valid": candidate.facts.get("is_valid"), "code": program.text}


def _last(heading: re.Pattern[str], prompt: str) -> float | None:
    """The score below a heading; the last one, as the task may hold it too."""
    found = heading.findall(prompt)
    return float(found[-1]) if found else None
