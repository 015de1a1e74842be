"""Where two programs differ: a patch that `git apply` takes, and lines for the page of a run."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import compress, count
from operator import ne
from pathlib import Path

from costada.store.address import StorePlace
from costada.store.candidates import SEED_ID
from costada.store.rows import RunSetup
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.program_form import PYTHON, file_ending

START = "start"
"""Stands for the initial program of a run."""

NO_NEWLINE = "\\ No newline at end of file\n"
MAX_DIFF = 20_000
"""Lines of two texts together that are compared; longer ones are replaced as a whole."""


def run_patch(database: StorePlace, since: str = START, place: str = "") -> str:
    """The patch from a candidate of a run to its best program so far; empty if they are equal.

    Args:
        database: The run file.
        since: Id of the candidate, or `start` for the initial program.
        place: The program's file, or the folder of its files, in paths of the patch; by default
            `initial_program` with the ending of its language, or no folder.

    Raises:
        ValueError: There is no run, no such candidate or no program, or the file is damaged.
    """
    if isinstance(database, Path) and not database.is_file():
        raise ValueError(
            f"{database.parent}: its run has not started (there is no {database.name} in it)"
        )
    with RunStore.at(database, is_read_only=True) as store:
        run_id = store.last_run()
        first = store.candidates.find(run_id, SEED_ID if since == START else since)
        if first is None:
            known = (
                "a run that has started"
                if not run_id
                else "start or the id of a candidate, such as 2.1"
            )
            raise ValueError(f"--from: got {since!r}, expected {known}")
        best = store.candidates.get(run_id, store.last_improvement(run_id) or SEED_ID)
        setup = store.setup(run_id)
    if best.program.is_empty:
        raise ValueError("the run has no valid program yet, and no initial one: nothing to apply")
    return program_patch(first.program, best.program, setup, place)


def program_patch(before: Program, after: Program, setup: RunSetup | None, place: str = "") -> str:
    """The patch between two programs of a run with a setup; `place` as in `run_patch`."""
    begun = setup.problem if setup else {}
    ending = file_ending(begun.get("file_name", ""), begun.get("language", PYTHON.name))
    usual = f"initial_program{ending}"
    return patch(*(_files(each, place, usual) for each in (before, after)))


def _files(program: Program, place: str, usual: str) -> Mapping[str, str]:
    if program.is_empty:
        return {}
    if program.is_one_text:
        return {place or usual: program.text}
    return {f"{place}/{path}" if place else path: text for path, text in program.files}


def patch(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The changes from some files to others, each text by its path, in the format of git."""
    return "".join(
        line
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
        for line in _file_patch(path, before.get(path), after.get(path))
    )


def _file_patch(path: str, before: str | None, after: str | None) -> Iterator[str]:
    """The lines of one file's part; a text is `None` where there is no file."""
    old, new = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    yield f"diff --git {old} {new}\n"
    if before is None:
        yield "new file mode 100644\n"
    if after is None:
        yield "deleted file mode 100644\n"
    # Git knows an added or deleted empty file by its mode line alone.
    if not before and not after:
        return
    blank = "\t" if " " in path else ""  # marks the end of a name with blanks
    yield f"--- {'/dev/null' if before is None else old + blank}\n"
    yield f"+++ {'/dev/null' if after is None else new + blank}\n"
    for line in _hunks(_lines(before or ""), _lines(after or "")):
        yield line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"' if '"' in name else name


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a newline ends one."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    if len(old) + len(new) <= MAX_DIFF:
        _, _, *lines = unified_diff(old, new)
        yield from lines
        return
    yield f"@@ -{min(1, len(old))},{len(old)} +{min(1, len(new))},{len(new)} @@\n"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


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
