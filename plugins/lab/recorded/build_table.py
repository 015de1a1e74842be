"""Build the packaged table from recordings.

`python -m costada.plugins.lab.recorded.build_table FOLDER` reads the recordings in a folder. Only
numbers and the names of runs and failures are taken over, no text of a program or an answer.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from costada.plugins.lab.recorded.table import (
    GUIDES_FILE,
    SCORE_DECIMALS,
    TRANSITIONS_FILE,
    Transition,
    guides_text,
    transitions_text,
)
from costada.values.usage import Usage

PROGRAMS = "circle_packing.jsonl.gz"
STEPS = "steps.csv.gz"
CALLS = "calls.csv.gz"

FRONTIER_METHODS = ("adaevolve", "budgetevolve", "costada")
"""Methods whose prompts have the form of CostAda's."""

FULL_REGIME, CAPPED_REGIME = "full", "capped"
"""Runs whose answers were long enough, and early experiments whose answers were cut off."""


def packaged_texts(recordings: Path) -> dict[str, str]:
    """The files of the table by name, made from the recordings in a folder."""
    steps = [row for row in _csv_rows(recordings / STEPS) if _is_taken_step(row)]
    logged = {row["run"] for row in steps}
    with gzip.open(recordings / PROGRAMS, "rt", encoding="utf-8") as file:
        programs = list(map(json.loads, file))
    taken = [
        *(_of_program(row, logged) for row in programs if _is_taken_program(row)),
        *(_of_step(row) for row in steps if row["stored"] == "0"),
    ]
    guides = [
        Usage(int(row["input_tokens"]), int(row["output_tokens"]))
        for row in _csv_rows(recordings / CALLS)
        if row["run"] in logged and row["role"] == "guide"
    ]
    taken.sort(key=lambda each: (each.run, each.iteration))
    return {TRANSITIONS_FILE: transitions_text(taken), GUIDES_FILE: guides_text(guides)}


def _csv_rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _is_taken_step(row: dict[str, str]) -> bool:
    return row["regime"] == FULL_REGIME and row["method"] in FRONTIER_METHODS


def _is_taken_program(row: dict[str, Any]) -> bool:
    """Whether a stored program comes from an answer to a prompt like ours, and a valid parent.

    EvoX stores no failures; its answers to a variation operator are not answers to a tactic.
    """
    is_of_frontier_method = row["method"] in FRONTIER_METHODS
    has_operator = row.get("guide_state") != "none"
    is_plain_evox = row["method"] == "evox" and row["valid"] and not has_operator
    return (
        row["kind"] == "proposal"
        and not row["parent_failed"]
        and row["parent_score"] is not None
        and (is_of_frontier_method or is_plain_evox)
    )


def _of_program(row: dict[str, Any], logged: set[str]) -> Transition:
    is_recorded = row.get("tokens") == "recorded" and row["method"] in FRONTIER_METHODS
    return Transition(
        run=_short_name(row["run"]),
        iteration=row["iteration"],
        is_capped=row["regime"] == CAPPED_REGIME,
        is_logged=row["run"] in logged,
        is_stored=True,
        is_guided=bool(row["guided"]),
        parent_score=_rounded(row["parent_score"]),
        best_shown_score=_rounded(row["best_context_score"] or 0.0) or None,
        score=_rounded(row["score"]) if row["valid"] else None,
        failure=row["failure"] or "",
        tokens=Usage(row["prompt_tokens"], row["completion_tokens"]) if is_recorded else None,
    )


def _of_step(row: dict[str, str]) -> Transition:
    """An iteration whose program was not kept; tokens are known where it made one call."""
    has_failed = row["failure"] == "1"
    return Transition(
        run=_short_name(row["run"]),
        iteration=int(row["iteration"]),
        is_capped=False,
        is_logged=True,
        is_stored=False,
        is_guided=row["guided"] == "1",
        parent_score=_rounded(row["parent_score"]) if row["parent_score"] else None,
        best_shown_score=_rounded(row["best_context_score"] or 0.0) or None,
        score=None if has_failed else _rounded(row["candidate_score"]),
        failure=row["failure_kind"] if has_failed else "",
        tokens=_tokens_of_only_call(row),
    )


def _tokens_of_only_call(row: dict[str, str]) -> Usage | None:
    calls = {role: int(float(row[f"n_{role}"] or 0)) for role in ("generation", "retry")}
    if sum(calls.values()) != 1:
        return None
    role = next(role for role, count in calls.items() if count)
    return Usage(int(row[f"{role}_input_tokens"]), int(row[f"{role}_output_tokens"]))


def _rounded(score: str | float) -> float:
    return round(float(score), SCORE_DECIMALS)


def _short_name(run: str) -> str:
    return re.sub("circle_packing_", "", run)


def main(arguments: Sequence[str]) -> None:
    """Write the table of the recordings in the folder that is named, beside this file."""
    (folder,) = arguments
    for name, text in packaged_texts(Path(folder)).items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
