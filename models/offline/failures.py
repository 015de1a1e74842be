"""Answers that fail the way real models' answers do, once in a while.

One answer in ten is spoilt (`FAILURE_RATE`), by one of the five ways below with equal chances; the
answer after a failed attempt is not. A forgiving reader can save one of the ways, the answer that
holds only the editable functions. Edits can fail by themselves as well, for nothing checks what a
changed number does to a program.
"""

import ast
from collections.abc import Callable
from random import Random

from costada.models.offline.blocks import fenced, replace_blocks
from costada.models.offline.source import Program, read_program

FAILURE_RATE = 0.1
"""Share of generated programs that are spoilt on purpose."""

Spoiling = Callable[[Program, Program], str]
"""From the current program and the changed one to an answer that fails."""


def spoilt_answer(current: Program, code: str, rng: Random) -> str:
    """Return an answer that fails to bring a changed program across."""
    changed = read_program(code)
    if changed is None or not changed.functions():
        return _prose_only(current, current)
    return rng.choice(_SPOILINGS)(current, changed)


def _prose_only(current: Program, changed: Program) -> str:
    """Announce the change and never make it."""
    return "I would apply this change and keep everything else as it is."


def _search_mismatch(current: Program, changed: Program) -> str:
    """Quote a line the program does not have."""
    blocks = replace_blocks(current.text, changed.text) or ""
    marker = "<<<<<<< SEARCH\n"
    return blocks.replace(marker, f"{marker}earlier_attempts = []\n")


def _syntax_error(current: Program, changed: Program) -> str:
    """Lose the colon behind the head of a function."""
    head = f"def {changed.functions()[-1].name}("
    lines = changed.text.split("\n")
    return fenced("\n".join(each.rstrip(":") if head in each else each for each in lines))


def _block_only(current: Program, changed: Program) -> str:
    """Answer with the editable functions and lose the rest of the file."""
    return fenced("\n\n\n".join(changed.source(each) for each in changed.functions()))


def _invalid_result(current: Program, changed: Program) -> str:
    """Return one entry less than was asked for."""
    last = changed.functions()[0].body[-1]
    result = last.value if isinstance(last, ast.Return) else None
    first = result.elts[0] if isinstance(result, ast.Tuple) and result.elts else result
    if first is None:
        return _prose_only(current, changed)
    cut = changed.replacing(first, f"{changed.source(first)}[:-1]")
    return fenced(changed.changed([cut]))


_SPOILINGS: tuple[Spoiling, ...] = (
    _prose_only,
    _search_mismatch,
    _syntax_error,
    _block_only,
    _invalid_result,
)
