"""The tables of a run for other programs: flat rows, as CSV, JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

from costada.nodes import trace_row
from costada.nodes.trace_row import DerivedColumns, TraceRow, columns_of, kind_of
from costada.reports.trace import ticket_of
from costada.store.address import damage_error
from costada.store.files import replacing
from costada.store.history import (
    LAST_ITERATION,
    Iterations,
    PastCall,
    PastCandidate,
    RunHistory,
    Tickets,
)
from costada.store.rows import checking_rows
from costada.values.evaluation import SANDBOX, WORKER
from costada.values.numbering import START, START_TICKET, Iteration, TicketNumber
from costada.values.roles import ROLES

Value = str | float | bool | None
Row = dict[str, Value]

MAX_INTEGER, MAX_FLOAT = 2**63, 10**308
"""Numbers below these fit into a column of any file format."""

WORDS = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
MAX_COLUMNS = 1000
"""Columns of a table; metrics, objectives and models have one each."""


class TableName(StrEnum):
    """The tables of a run."""

    STEPS = "steps"
    CALLS = "calls"
    CANDIDATES = "candidates"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, the type of its values where there are any, and what they mean."""

    name: str
    kind: type
    meaning: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a run.

    Attributes:
        columns: Its columns in order, those of models, objectives and metrics last.
        rows: Yields its rows; each has a value or `None` for every column.
    """

    columns: Sequence[Column]
    rows: Callable[[], Iterator[Row]]


STEP_GROUPS = ("objectives", "dollars", "dollars_by_role")
EXPORTED_STEP_COLUMNS = tuple(
    Column(name, str if kind_of(row, name) == list[str] else kind_of(row, name), known.text)
    for row in (TraceRow, DerivedColumns)
    for name, known in columns_of(row).items()
    if known.is_exported and name not in STEP_GROUPS
)
CALL_COLUMNS = (
    Column("iteration", int, "the iteration that is charged; empty while its ticket has not ended"),
    Column("ticket", int, "number of the ticket, in the order of launching"),
    Column("role", str, f"{', '.join(f'`{each}`' for each in ROLES)} or another role"),
    Column("attempt", int, "counts from 1 within the ticket and role"),
    Column("number", int, "counts the requests of one attempt from 1"),
    Column("status", str, "`done`, `error`, `lost`, `uncounted`, or `started` for one in flight"),
    Column("dollars", float, "cost of the request"),
    Column("in_doubt_dollars", float, "the most that it can have cost beyond that"),
    Column("saved_dollars", float, "what the provider's prompt cache saved"),
    Column("input_tokens", int, "billed input tokens, cached ones included"),
    Column("output_tokens", int, "billed output tokens, reasoning included"),
    Column("cached_tokens", int, "input tokens read from the provider's cache"),
    Column("cache_write_tokens", int, "input tokens written to the provider's cache"),
    Column("reasoning_tokens", int, "output tokens spent on reasoning"),
    Column("model", str, "the model as its provider names it"),
    Column("entry", str, "what the menu calls the model; only with several models"),
    Column("provider", str, "name of the provider"),
    Column("provider_id", str, "the provider's id of the response"),
    Column("frontier", int, "the frontier, from 1; empty for a guide"),
    Column("finish_reason", str, "why the model stopped, in the provider's words"),
    Column("is_estimated", bool, "whether no provider reported the tokens"),
    Column("is_cache_hit", bool, "whether a local cache answered, free of charge"),
    Column("error", str, "what went wrong"),
    Column("ended_at", float, "end of the request, in seconds since 1970 UTC"),
    Column("seconds", float, "from request to response"),
)
CANDIDATE_COLUMNS = (
    Column("id", str, "id of the candidate; that of the initial program is `0.1`"),
    Column(
        "iteration",
        int,
        "its iteration, from 0, the start; empty while its ticket runs",
    ),
    Column("score", float, "normalised score, higher is better; 0 if it is invalid"),
    Column("objective", float, "the same in the problem's units"),
    Column("is_valid", bool, "whether it ran and passed every check"),
    Column("error", str, "why the evaluator refused it"),
    Column("parent_id", str, "the candidate that it was edited or copied from"),
    Column("generation", int, "edits that separate it from the initial program"),
    Column("inspirations", str, "ids of the candidates shown beside its parent, with spaces"),
    Column("changes", str, "summary of the edit"),
    Column("label", str, "what a search strategy said of its parent"),
    Column("is_copy", bool, "whether it migrated to another frontier"),
    Column("is_cached", bool, "whether the same program had been evaluated before"),
    Column("is_trial", bool, "whether the model evaluated it with a tool"),
    Column("worker", str, "host and process that evaluated it; only with `--evaluate-on`"),
    Column("sandbox", str, "what confined it there; only with `--evaluate-on`"),
)
PROGRAM = Column("program", str, "its program, several files each below a line with the path")
ANSWER_COLUMNS = (
    Column("run", str, "id of the run"),
    Column("kind", str, "`proposal`, `guide` (an answer with tactics) or `seed` (initial program)"),
    Column("id", str, "id that a proposal has as a candidate, if it became one"),
    Column("parent_id", str, "the candidate that it was edited from; empty where none came of it"),
    Column("iteration", int, "its iteration; empty while its ticket runs"),
    Column("role", str, "`generation`, `retry` or `guide`"),
    Column("model", str, "the model as its provider names it"),
    Column("guided", bool, "whether the prompt held a tactic"),
    Column("parent_score", float, "score of the program to change, of a guide the best, as shown"),
    Column("n_context", int, "other programs shown"),
    Column("best_context_score", float, "the best of their scores, as shown"),
    Column("score", float, "normalised score of the candidate; 0 if it is invalid"),
    Column("objective", float, "the same in the problem's units"),
    Column("valid", bool, "whether there is a candidate that passed every check"),
    Column("error", str, "why the evaluator refused it"),
    Column("response", str, "the raw answer"),
    Column("code", str, "the program made of it; empty where none was"),
    Column("finish_reason", str, "why the model stopped, in the provider's words"),
    Column("prompt_tokens", int, "billed input tokens"),
    Column("completion_tokens", int, "billed output tokens, reasoning included"),
    Column("cost", float, "dollars of the call"),
)
GROUPS = {
    **{name: trace_row.STEP_COLUMNS[name].text for name in STEP_GROUPS},
    "metrics": "metric of the evaluator",
}
"""Columns of one run, such as `metrics.NAME`."""

COLUMNS = {
    TableName.STEPS: EXPORTED_STEP_COLUMNS,
    TableName.CALLS: CALL_COLUMNS,
    TableName.CANDIDATES: CANDIDATE_COLUMNS,
    TableName.ANSWERS: ANSWER_COLUMNS,
}


def table_of(
    history: RunHistory, name: TableName, run_id: str, *, has_programs: bool = False
) -> Table:
    """A table of a run.

    Args:
        history: The run file; it must be open while rows are read.
        name: Which table.
        run_id: The run.
        has_programs: Whether candidates have the column `program`.

    Raises:
        ValueError: If the file is damaged, or the table has more columns than any run needs, or
            the run has no such table. Reading the rows raises the same.
    """
    span, candidates = Iterations(run_id), list[PastCandidate]()
    with checking_rows(history.path):
        steps = history.steps(span)
        iterations: dict[TicketNumber, Iteration] = {START_TICKET: START}
        iterations |= {ticket_of(step): step["iteration"] for step in steps}
        if name is TableName.ANSWERS:
            return _answers(history, run_id, iterations)
        if name is TableName.STEPS:
            seconds = dict(history.seconds(span))
            found = [_step(step, seconds) for step in steps]
        elif name is TableName.CALLS:
            found = [_call(call, iterations) for call in history.calls(Tickets(run_id))]
        else:
            candidates = [*history.candidates(Tickets(run_id)), *history.copies(span)]
            candidates.sort(key=partial(_place_of, iterations=iterations))
            found = [_candidate(each, iterations) for each in candidates]
    own = [PROGRAM] if has_programs and name is TableName.CANDIDATES else []
    columns = [*COLUMNS[name], *own, *_group_columns(found, history)]

    def rows() -> Iterator[Row]:
        for place, values in enumerate(found):
            if own:
                history.begin_part()
                program = history.program(candidates[place].program)
                values = {**values, PROGRAM.name: program.text}
            yield {each.name: _checked(values, each, place, name, history) for each in columns}

    return Table(columns, rows)


def _answers(
    history: RunHistory, run_id: str, iterations: Mapping[TicketNumber, Iteration]
) -> Table:
    # Not imported at the start: it loads LangChain, which other tables do without.
    from costada.reports.answer_rows import answer_rows, check_answers

    check_answers(history, run_id)

    def rows() -> Iterator[Row]:
        # Answers and programs are read row by row: together they may be large.
        with checking_rows(history.path):
            for place, values in enumerate(answer_rows(history, run_id, iterations)):
                yield {
                    each.name: _checked(values, each, place, TableName.ANSWERS, history)
                    for each in ANSWER_COLUMNS
                }

    return Table(ANSWER_COLUMNS, rows)


def _group_columns(found: Sequence[Mapping[str, Any]], history: RunHistory) -> list[Column]:
    """The columns for names that only this run has, such as `metrics.NAME`, in order."""
    columns: dict[str, Column] = {}
    for values in found:
        for name in values:
            group, dot, _ = name.partition(".")
            if dot and name not in columns:
                columns[name] = Column(name, float, GROUPS[group])
                if len(columns) > MAX_COLUMNS:
                    raise damage_error(history.path, f"has more than {MAX_COLUMNS:,} metrics")
    return list(columns.values())


def _step(step: Mapping[str, Any], seconds: Mapping[Iteration, float]) -> dict[str, Any]:
    steered, router = step.get("steered"), step.get("router")
    return {
        **{each.name: step.get(each.name) for each in EXPORTED_STEP_COLUMNS},
        "ticket": ticket_of(step),
        "events": _joined(step.get("events")),
        "models": _joined(step.get("models")),
        "idea": steered.get("idea") if isinstance(steered, Mapping) else None,
        "seconds": seconds.get(step["iteration"]),
        **_group("objectives", step.get("objectives")),
        **_group("dollars_by_role", step.get("dollars_by_role")),
        **_group(
            "dollars",
            {row["name"]: row["dollars"] for row in router} if isinstance(router, list) else None,
        ),
    }


def _call(call: PastCall, iterations: Mapping[TicketNumber, Iteration]) -> dict[str, Any]:
    frontier = call.facts.get("frontier")
    return {
        **{each.name: call.facts.get(each.name) for each in CALL_COLUMNS},
        "iteration": iterations.get(call.ticket),
        "ticket": call.ticket,
        "role": call.role,
        "attempt": call.attempt,
        "number": call.number,
        "status": str(call.status),
        "dollars": call.cost,
        "in_doubt_dollars": call.bound,
        "saved_dollars": call.saved,
        "frontier": frontier + 1 if isinstance(frontier, int) else frontier,
    }


def _candidate(
    candidate: PastCandidate, iterations: Mapping[TicketNumber, Iteration]
) -> dict[str, Any]:
    texts = candidate.facts.get("artifacts")
    known = texts if isinstance(texts, Mapping) else {}
    return {
        **{each.name: candidate.facts.get(each.name) for each in CANDIDATE_COLUMNS},
        **{name: known.get(name) for name in (WORKER, SANDBOX)},
        "id": candidate.id,
        "iteration": _iteration_of(candidate, iterations),
        "is_copy": candidate.migrated_in is not None,
        "inspirations": _joined(candidate.facts.get("inspirations")),
        **_group("metrics", candidate.facts.get("metrics")),
    }


def _iteration_of(
    candidate: PastCandidate, iterations: Mapping[TicketNumber, Iteration]
) -> Iteration | None:
    """The iteration of a copy, or as which the step of a candidate landed, `None` before."""
    return (
        iterations.get(candidate.ticket) if candidate.migrated_in is None else candidate.migrated_in
    )


def _place_of(candidate: PastCandidate, iterations: Mapping[TicketNumber, Iteration]) -> Iteration:
    found = _iteration_of(candidate, iterations)
    return LAST_ITERATION if found is None else found


def _joined(names: object) -> str | None:
    if not isinstance(names, list):
        return None
    return " ".join(map(str, names)) or None


def _group(group: str, values: object) -> dict[str, Any]:
    return (
        {f"{group}.{key}": each for key, each in values.items()}
        if isinstance(values, Mapping)
        else {}
    )


def _checked(
    values: Mapping[str, Any], column: Column, place: int, table: str, history: RunHistory
) -> Value:
    """A value as its column has it.

    Raises:
        ValueError: If it is of another type, or a number beyond those of the type.
    """
    value = values.get(column.name)
    if value is None or (column.kind is str and value == ""):
        return None
    # bool is an int in Python, but no number in a table.
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if column.kind is float and is_number and abs(value) < MAX_FLOAT:
        return float(value)
    if column.kind is int and is_number and abs(value) < MAX_INTEGER and value == int(value):
        return int(value)
    if column.kind is str and isinstance(value, str):
        # JSON in a run file may hold lone surrogates, which no UTF-8 file can.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if column.kind is bool and isinstance(value, bool):
        return value
    shown = json.dumps(str(value)[:40])
    what = f"row {place + 1} of {table} has {column.name} {shown}, expected {WORDS[column.kind]}"
    raise damage_error(history.path, what)


FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a string that a spreadsheet would execute, full-width forms included."""

ROWS_AT_ONCE = 1000
"""Rows of a Parquet file that are in memory together."""


class FileFormat(StrEnum):
    """File formats of a table."""

    CSV = "csv"
    PARQUET = "parquet"
    JSONL = "jsonl"


def check_format(file_format: FileFormat) -> None:
    """Raise `ValueError` if the library that writes a format is not installed."""
    if file_format is FileFormat.PARQUET and find_spec("pyarrow") is None:
        raise ValueError("parquet needs pyarrow; pip install 'costada[parquet]'")


def write_table(table: Table, file_format: FileFormat, path: Path) -> None:
    """Write a table to a file, which is replaced at the end.

    Raises:
        ValueError: If the format's library is missing or a row is damaged.
        OSError: If the file cannot be written.
    """
    check_format(file_format)
    if file_format is FileFormat.PARQUET:
        _write_parquet(table, path)
        return
    with replacing(path) as file:
        for line in lines_of(table, file_format):
            file.write(line.encode())


def lines_of(table: Table, file_format: FileFormat) -> Iterator[str]:
    """The lines of a table as CSV or JSON, each with its line break.

    In CSV a missing value is an empty cell. An apostrophe, which spreadsheets hide, precedes a
    string that they would execute. Parquet has no lines.
    """
    if file_format is FileFormat.JSONL:
        for row in table.rows():
            yield f"{json.dumps(row, ensure_ascii=False)}\n"
        return
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def line(cells: list[Value]) -> str:
        # csv writes to files only, and the lines are yielded one by one.
        buffer.seek(0)
        buffer.truncate()
        writer.writerow([_harmless(each) for each in cells])
        return buffer.getvalue()

    yield line([column.name for column in table.columns])
    for row in table.rows():
        yield line([row[column.name] for column in table.columns])


def _harmless(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    is_formula = isinstance(value, str) and value.lstrip(" ").startswith(FORMULA_SIGNS)
    return f"'{value}" if is_formula else value


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        str: pyarrow.string(),
        bool: pyarrow.bool_(),
    }
    schema = pyarrow.schema([(each.name, kinds[each.kind]) for each in table.columns])
    rows = table.rows()
    with replacing(path) as file, parquet.ParquetWriter(file, schema) as writer:
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
