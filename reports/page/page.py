"""The page of a run as a file beside the run's other files."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from costada.reports.page.feed import Feed, Json
from costada.runs.folder import RunFolder
from costada.store.files import replace_text

ITERATIONS = 20
"""Iterations in a block: a page waits for no more than a blink until it is unpacked."""

LEVEL = 6
LARGEST_PAGE = 4 * 2**30
"""Bytes of all texts of a page before they are packed."""


@dataclass(frozen=True, slots=True)
class Block:
    """The texts of some iterations: `first` is the lowest of them, `packed` gzip in base64."""

    first: int
    packed: str


def blocks(feed: Feed) -> Iterator[Block]:
    """Yield the texts of all iterations in order; none before a run has begun.

    Raises as the methods of `Feed` do.
    """
    size = 0
    for first in sorted({each - each % ITERATIONS for each in feed.iterations()}):
        texts = json.dumps(feed.texts(first, first + ITERATIONS - 1)).encode("ascii")
        size += len(texts)
        if size > LARGEST_PAGE:
            raise ValueError(f"texts of more than {LARGEST_PAGE:,} bytes, too many for one page")
        # mtime=0: the same run gives the same file.
        packed = compress(texts, LEVEL, mtime=0)
        yield Block(first, b64encode(packed).decode("ascii"))


FILES = "costada.reports.page"
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


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a run and return its path; the run may still be going on.

    Args:
        folder: The folder of the run.
        out: The file; `report.html` in the folder if not given.

    Raises:
        ValueError: If the folder holds no run that has begun, its file is damaged, or the page
            cannot lie there.
        OSError: If a file cannot be read or written.
    """
    path = out or folder / "report.html"
    if path.is_dir():
        raise ValueError(f"{path}: is a folder, expected a file for the page")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    run = RunFolder(folder)
    feed = Feed(run)
    figures = feed.figures()
    if not figures["run_id"]:
        raise ValueError(f"{folder}: the run has not begun, expected one with something to show")
    replace_text(path, to_html(figures, blocks(feed)))
    return path
