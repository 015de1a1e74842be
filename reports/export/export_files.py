"""Tables as files: CSV that no spreadsheet executes, JSON lines, and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from enum import StrEnum
from importlib.util import find_spec
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from costada.store.files import replacing

if TYPE_CHECKING:
    from costada.reports.export.export_tables import Table, Value

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a text that a spreadsheet would execute, full-width forms included."""

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

    In CSV a missing value is an empty cell. A text that a spreadsheet would execute is preceded by
    an apostrophe, which spreadsheets hide. Parquet has no lines.
    """
    if file_format is FileFormat.JSONL:
        for row in table.rows():
            yield f"{json.dumps(row, ensure_ascii=False)}\n"
        return
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")

    def line(cells: list[Value]) -> str:
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
