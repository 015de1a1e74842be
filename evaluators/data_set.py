"""A data set: examples that candidates are judged on, one by one."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from reprlib import repr as shortened
from typing import Self

from costada.evaluators.shown_paths import open_shown

Example = Mapping[str, object]

INPUTS = "inputs"
"""Key of an example's keyword arguments of the call, where candidates are called or run."""

MAX_BYTES = 256 * 2**20
"""Bytes of a file of examples."""


class DataSet(tuple[Example, ...]):
    """Examples as plain data, in a fixed order."""

    @classmethod
    def of(cls, name: str, examples: Iterable[object]) -> Self:
        """Checked examples.

        Raises:
            ValueError: If one is not a dict of plain data; `name` is that of the field.
        """
        if isinstance(examples, str | bytes | Mapping) or not isinstance(examples, Iterable):
            raise ValueError(f"{name} is {shortened(examples)}; expected a list of dicts")
        return cls(_checked(f"{name}[{place}]", each) for place, each in enumerate(examples))

    @cached_property
    def digest(self) -> str:
        """Hash of the examples and their order."""
        return sha256(json.dumps(self).encode()).hexdigest()

    def decided_by(self) -> tuple[object, ...]:
        """What evaluations depend on."""
        return (self.digest,)

    def __repr__(self) -> str:
        return f"<{len(self)} examples>"


def _checked(label: str, example: object) -> Example:
    if not isinstance(example, Mapping) or not all(isinstance(key, str) for key in example):
        raise ValueError(f"{label} is {shortened(example)}; expected a dict with strings as keys")
    try:
        json.dumps(example, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{label} is {shortened(example)}; expected plain data: {error}") from None
    return example


def read_examples(path: Path, folder: Path) -> DataSet:
    """The examples in a file of a problem folder, one JSON object per line.

    Raises:
        ValueError: Naming the file and the line that is wrong, or if there is no example.
    """
    if not path.is_file():
        raise ValueError(f"{path}: does not exist; expected a file with one JSON object per line")
    with open_shown(path, folder) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES:,} bytes")
    examples = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        label = f"{path}, line {number}"
        try:
            example = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{label}: {error}; expected a JSON object") from None
        examples.append(_checked(label, example))
    if not examples:
        raise ValueError(f"{path}: holds no example; expected one JSON object per line")
    return DataSet(examples)
