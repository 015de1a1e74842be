"""What an answer changed, in one line per edit."""

import re
from itertools import dropwhile, islice

from costada.prompts.diff import Edit, Patched

_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+(?P<name>\w+)", re.MULTILINE)
_DOCSTRING = re.compile(r"\s*[rR]?(?:\"\"\"|''')\s*(?P<line>.*)")


def patch_summary(patched: Patched) -> str:
    """Return a line for each edit that was applied, and one that counts the others."""
    lines = [_edit_summary(edit) for edit in patched.applied]
    if patched.unmatched:
        lines.append(f"edits without a place: {len(patched.unmatched)}")
    return "\n".join(lines)


def rewrite_summary(text: str) -> str:
    """Return a line about the first function or class of a rewritten text, or its length."""
    return f"rewrite of {_definition_summary(text) or _length(text)}"


def _edit_summary(edit: Edit) -> str:
    definition = _definition_summary(edit.replacement)
    if definition is not None:
        return definition
    old, new = edit.search.strip(), edit.replacement.strip()
    if "\n" not in old + new:
        return f"{old} -> {new}"
    return f"{_length(old)} -> {_length(new)}"


def _definition_summary(text: str) -> str | None:
    found = _DEFINITION.search(text)
    if found is None:
        return None
    lines = text[found.start() :].split("\n")
    body = dropwhile(lambda line: not line.rstrip().endswith(":"), lines)
    docstring = _DOCSTRING.match("\n".join(islice(body, 1, None)))
    purpose = docstring["line"].strip(" \t\"'") if docstring else ""
    return f"{found['name']}: {purpose}" if purpose else found["name"]


def _length(text: str) -> str:
    count = len(text.split("\n")) if text else 0
    return f"{count} line{'' if count == 1 else 's'}"
