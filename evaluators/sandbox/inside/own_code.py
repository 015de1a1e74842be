"""Whether code in the words of a command is the evaluator's: its text is in the evaluator's code.

An evaluator fills in numbers, paths and other plain values. So code is its own if all of it is one
text of its code, or several that it puts together, with such values where something is filled in.
Statements, expressions and names of the candidate do not fit. A text that the evaluator changes in
another way, or reads from a file, does not fit either, and counts as the candidate's.
"""

import ast
import re
from collections.abc import Iterable
from functools import partial
from itertools import product

from costada.evaluators.sandbox.inside.own_sources import Reached, Scope, called_name

PLAIN = r"[\w ./:@%+=,~-]*"
"""What may be filled in within quotes: it neither ends the string nor is code in one."""

STRING = r"[bru]{0,2}(?:'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n{]|\\.)*\")"
VALUE = rf"(?:(?>{STRING}|\b(?:True|False|None|nan|inf)\b|[-+]?\.?\d[\w.]*|[][(){{}},: ]))*"
"""What may be filled in elsewhere: numbers, strings, and lists, tuples and dicts of them."""

WORD = r"[\w./:@%+=,~-]*"
"""What may be filled in in the text of a shell: a part of one word."""

ENDED = re.compile(
    r"#[^\n]*|'{3}.*?'{3}|\"{3}.*?\"{3}|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL
)
"""Comments, and strings that have ended."""

WORDS = re.compile(r"\s+|\S+")
FILLED_IN = re.compile(r"%[-+ #0\d.]*[a-zA-Z]|\{[^{}]*\}")
KEEPING = frozenset(("dedent", "strip", "lstrip", "rstrip", "str", "encode", "decode"))
"""Functions that change white space alone, or nothing."""

MAX_DEPTH, MAX_VARIANTS = 8, 64
MAX_CODE_CHARS = 100_000

Template = tuple[str | None, ...]
"""Texts, and None between them where something is filled in."""

UNKNOWN: list[Template] = [(None,)]


def is_own_code(code: str, reached: Reached, *, is_shell: bool = False) -> bool:
    """Whether a text is what the evaluator's code gives to a command, with plain values in it."""
    if len(code) > MAX_CODE_CHARS:
        return False
    compact = "".join(code.split())
    for part in reached.parts():
        for template in _templates(reached, part.scope, part.node, 0):
            texts = ["".join(text.split()) for text in template if text]
            may_fit = any(texts) and all(text in compact for text in texts)
            if may_fit and re.fullmatch(_pattern(template, is_shell=is_shell), code):
                return True
    return False


def _templates(reached: Reached, scope: Scope, node: ast.AST, depth: int) -> list[Template]:
    """What the text of an expression may be."""
    if depth > MAX_DEPTH:
        return UNKNOWN
    of = partial(_templates, reached, depth=depth + 1)
    match node:
        case ast.Constant(value=str(text)):
            return [(text,)]
        case ast.JoinedStr(values=parts):
            return _joined(of(scope, part) for part in parts)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return of(scope, value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined(of(scope, each) for each in (left, right))
        case (
            ast.BinOp(left=text, op=ast.Mod())
            | ast.Call(func=ast.Attribute(value=text, attr="format"))
        ):
            return _with_gaps(of(scope, text), FILLED_IN)
        case ast.Call(
            func=ast.Attribute(value=text, attr="replace"),
            args=[ast.Constant(value=str(old)), _],
        ) if old:
            return _with_gaps(of(scope, text), re.compile(re.escape(old)))
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(joint)), attr="join"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
        ):
            between: list[Template] = [(joint,)]
            texts = [of(scope, part) for part in parts]
            return _joined([each for text in texts for each in (text, between)][:-1])
        case ast.Call(func=ast.Attribute(value=text, attr=name), args=[]) if name in KEEPING:
            return of(scope, text)
        case ast.Call(func=function, args=[text]) if called_name(function) in KEEPING:
            return of(scope, text)
        case ast.Name(id=name):
            values = reached.values(scope, name)
            found = [each for value in values for each in of(*value)]
            return found[:MAX_VARIANTS] or UNKNOWN
    return UNKNOWN


def _joined(parts: Iterable[list[Template]]) -> list[Template]:
    """The texts that some texts make, one behind the other."""
    found: list[Template] = [()]
    for part in parts:
        found = [(*first, *second) for first, second in product(found, part)][:MAX_VARIANTS]
    return found


def _with_gaps(templates: list[Template], places: re.Pattern[str]) -> list[Template]:
    """Texts in which something is filled in at some places."""
    found = []
    for template in templates:
        parts: list[str | None] = []
        for text in template:
            for piece in places.split(text) if text is not None else [None]:
                parts += [piece, None]
            parts.pop()
        found.append(tuple(parts))
    return found


def _pattern(template: Template, *, is_shell: bool) -> str:
    """A pattern for a text; white space may differ, as that at the beginning of lines does."""
    parts = []
    before = ""
    for text in template:
        if text is None:
            quoted_or_not = PLAIN if _is_in_quotes(before) else VALUE
            parts.append(WORD if is_shell else quoted_or_not)
        else:
            before += text
            parts += [re.escape(each) if each.strip() else r"\s*" for each in WORDS.findall(text)]
    return rf"\s*{''.join(parts)}\s*"


def _is_in_quotes(text: str) -> bool:
    """Whether a string is open at the end of a text, and no code in that string is."""
    rest = ENDED.sub("", text)
    return ("'" in rest or '"' in rest) and "{" not in rest
