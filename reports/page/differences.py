"""Where two programs differ: lines with their kinds, for the page of a run."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import compress, count
from operator import ne

from costada.reports.patch import MAX_DIFF
from costada.values.candidate import Program

CONTEXT_LINES = 3


def program_rows(before: Program, after: Program) -> list[tuple[str, str]]:
    """The changed lines between two programs, each with its kind; see `diff_rows`.

    Those of several files stand below a line of kind file for each file that differs.
    """
    if before.is_one_text and after.is_one_text:
        return diff_rows(before.text, after.text)
    rows: list[tuple[str, str]] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old != new:
            remark = " (added)" if old is None else " (deleted)" if new is None else ""
            rows += [("file", f"{path}{remark}"), *diff_rows(old or "", new or "")]
    return rows


def diff_rows(before: str, after: str) -> list[tuple[str, str]]:
    """The changed lines between two programs with a few around them, each with its kind.

    A kind is same, added, removed or gap; programs beyond `MAX_DIFF` are shown whole.
    """
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > MAX_DIFF:
        return [*(("removed", line) for line in old), *(("added", line) for line in new)]
    # Most lines are the same: only those from the first to the last difference are compared.
    start = max(0, _num_equal(old, new) - CONTEXT_LINES)
    end = max(0, _num_equal(old[start:][::-1], new[start:][::-1]) - CONTEXT_LINES)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    rows: list[tuple[str, str]] = []
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT_LINES):
        if start + group[0][1]:
            rows.append(("gap", ""))
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                rows += [("same", line) for line in old[i:i_end]]
                continue
            rows += [("removed", line) for line in old[i:i_end]]
            rows += [("added", line) for line in new[j:j_end]]
    return rows


def _num_equal(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines at the beginning of two texts are equal."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))
