"""The page of a run: one HTML text that runs its own script and nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from costada.runs.page.blocks import Block
from costada.runs.page.feed import Json

FILES = "costada.runs.page"
SCRIPTS = "scripts"
ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}
"""Within JSON these mean the same and can end no element."""

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src {connect};"
    " img-src data:; base-uri 'none'; form-action 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only the page's own script and style, told by their hashes; no text ever becomes markup."""


def to_html(figures: Json, blocks: Iterable[Block]) -> str:
    """Return the page of a run with everything in it.

    Args:
        figures: What `Feed.figures` gave.
        blocks: The texts of the run.
    """
    return _render({**figures, "is_live": False}, blocks, policy(is_live=False))


def live_html(figures: Json) -> str:
    """Return the page that asks its server for what is new, and for texts."""
    return _render({**figures, "is_live": True}, (), policy(is_live=True))


@cache
def policy(*, is_live: bool) -> str:
    """Return the content security policy of a page; a live one may ask its own server."""
    return POLICY.format(
        script=_hash(_script()), style=_hash(_style()), connect="'self'" if is_live else "'none'"
    )


def embedded(value: object) -> str:
    """Return a value as JSON that can stand inside a script element.

    Whatever texts it holds, the result is ASCII without angle brackets and ampersands.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def _render(data: Mapping[str, object], blocks: Iterable[Block], allowed: str) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_read(files(FILES) / "page.html"))
    return template.render(
        title=_title(data),
        policy=Markup(allowed),  # noqa: S704  our own text
        style=Markup(_style()),  # noqa: S704  our own file
        script=Markup(_script()),  # noqa: S704  our own files
        data=Markup(embedded(data)),  # noqa: S704  escaped for this place
        blocks=blocks,
    )


def _title(data: Mapping[str, object]) -> str:
    heading = data["heading"]
    said = heading if isinstance(heading, Mapping) else {}
    words = f"{said.get('problem')}, {said.get('method')}, {said.get('model')}"
    return words.encode("utf-8", "replace").decode("utf-8")


@cache
def _style() -> str:
    return f"\n{_read(files(FILES) / 'page.css')}"


@cache
def _script() -> str:
    """Return all scripts as one, in the order of their names, with nothing left in the open."""
    parts = sorted((files(FILES) / SCRIPTS).iterdir(), key=lambda part: part.name)
    text = "\n".join(_read(part) for part in parts if part.name.endswith(".js"))
    return f'\n"use strict";\n(() => {{\n{text}}})();\n'


def _read(file: Traversable) -> str:
    return file.read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
