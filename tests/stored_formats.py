"""Files and databases of earlier formats, as the versions that had them wrote them.

`tests/formats/N` holds what the last version of format N has written in offline runs:

- `finished.zip`: a run folder whose budget is used up.
- `within.zip`: one that was killed within a step, whose answer is stored.
- `in-flight.zip`: one with three steps in flight that was killed, of which some follow a guide.
- `purse.sqlite.gz`: a purse with the account of a run, open and closed accounts of agents, and a
  call that never ended.
- `database.sql.gz`: a Postgres schema with the run `packing` and a purse.
- `journal.sqlite.gz`: the journal of a gateway.
"""

import gzip
import shutil
from pathlib import Path

FORMATS = Path(__file__).with_name("formats")


def stored_run(number: int, name: str, parent: Path) -> Path:
    """A run folder of a format, in a folder of this test."""
    folder = parent / name
    shutil.unpack_archive(FORMATS / str(number) / f"{name}.zip", folder)
    return folder


def stored_file(number: int, name: str, parent: Path) -> Path:
    """A file of a format, in a folder of this test."""
    path = parent / name
    path.write_bytes(gzip.decompress((FORMATS / str(number) / f"{name}.gz").read_bytes()))
    return path


def stored_statements(number: int) -> str:
    """The statements that make a Postgres schema of a format."""
    return gzip.decompress((FORMATS / str(number) / "database.sql.gz").read_bytes()).decode()
