"""The distance of two programs.

Programs are compared by their texts alone and never parsed: a candidate may be broken.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from costada.values.candidate import Program

Item = TypeVar("Item")

TOKEN_WEIGHT = 0.5
FEATURE_WEIGHT = 0.3
LENGTH_WEIGHT = 0.2

TOKEN = re.compile(r"[^\W\d]\w+|\d[\d.]+")
IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)
FROM_IMPORT = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import\b", re.MULTILINE)
DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?(def|class)[ \t]+(\w+)", re.MULTILINE)
DOTTED_CALL = re.compile(r"(?<![\w.])([^\W\d]\w*(?:\.\w+)+)[ \t]*\(")
KEYWORDS = frozenset({"for", "while", "try", "with", "yield", "async", "lambda"})


@dataclass(frozen=True, slots=True)
class Features:
    """What the distance looks at in one program.

    Attributes:
        tokens: Identifiers and numbers of at least two characters.
        structure: Imported modules, defined names, dotted calls, keywords and paths of several
            files, each with its kind.
        length: Characters of all texts.
    """

    tokens: frozenset[str]
    structure: frozenset[tuple[str, str]]
    length: int


def distance(one: Program, other: Program) -> float:
    """The distance of two programs, symmetric, in [0, 1], 0 for equal ones."""
    if one == other:
        return 0.0
    return _distance(one, other) if one.files < other.files else _distance(other, one)


@lru_cache(maxsize=16384)
def _distance(one: Program, other: Program) -> float:
    left, right = program_features(one), program_features(other)
    return (
        TOKEN_WEIGHT * jaccard_distance(left.tokens, right.tokens)
        + FEATURE_WEIGHT * jaccard_distance(left.structure, right.structure)
        + LENGTH_WEIGHT * length_distance(left.length, right.length)
    )


def program_features(program: Program) -> Features:
    """What the distance looks at in a program: in all its files, and in their paths."""
    return features(program.text) if program.is_one_text else _features_of_files(program)


@lru_cache(maxsize=64)
def _features_of_files(program: Program) -> Features:
    # Candidates share most of their files: each text is looked at once.
    found = [features(text) for _, text in program.files]
    return Features(
        frozenset().union(*(each.tokens for each in found)),
        frozenset(("file", path) for path in program).union(*(each.structure for each in found)),
        sum(each.length for each in found),
    )


@lru_cache(maxsize=1024)
def features(code: str) -> Features:
    """What the distance looks at in a text."""
    tokens = frozenset(TOKEN.findall(code))
    return Features(tokens, frozenset(_structure(code, tokens)), len(code))


def jaccard_distance(left: frozenset[Item], right: frozenset[Item]) -> float:
    """The share of the union that is not common, 0 for two empty sets."""
    common = len(left & right)
    union = len(left) + len(right) - common
    return 0.0 if union == 0 else 1.0 - common / union


def length_distance(length: int, other: int) -> float:
    """The difference of two lengths relative to the longer one, 0 for two empty texts."""
    longer = max(length, other)
    return 0.0 if longer == 0 else abs(length - other) / longer


def _structure(code: str, tokens: frozenset[str]) -> set[tuple[str, str]]:
    """Imports, definitions, calls and keywords; a keyword is a token, if a whole word."""
    modules = {name.split()[0] for line in IMPORT.findall(code) for name in _listed(line)}
    modules.update(FROM_IMPORT.findall(code))
    return (
        {("import", module) for module in modules}
        | {(kind, name) for kind, name in DEFINITION.findall(code)}
        | {("call", name) for name in DOTTED_CALL.findall(code)}
        | {("keyword", word) for word in KEYWORDS & tokens if re.search(rf"\b{word}\b", code)}
    )


def _listed(line: str) -> list[str]:
    return [name for name in line.split(",") if name.strip()]
