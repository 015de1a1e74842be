"""The HTML pages of a run and of an index of runs: each runs its own script and nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from costada.reports.page.feed import Feed, Json
from costada.reports.run_view import RunView
from costada.store.files import make_folder, replace_text

FILES = files("costada.reports.page")
SHARED_SCRIPTS = ("10_words.js", "15_shared.js")
"""Scripts of the page of a run that the index uses as well."""

ITERATIONS = 20
"""Iterations in a block, small enough to be unpacked without a visible delay."""

COMPRESSION_LEVEL = 6
MAX_PAGE = 4 * 2**30
"""Bytes of all texts of a page before they are packed."""

ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}
"""Within JSON these mean the same and cannot end an element."""

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src {connect};"
    " img-src data:; base-uri 'none'; form-action 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Only the page's own script and style, named by their hashes; no text ever becomes markup."""


@dataclass(frozen=True, slots=True)
class Block:
    """The texts of some iterations: `first` is the lowest of them, `packed` gzip in base64."""

    first: int
    packed: str


def write_page(run: RunView, out: Path | None = None) -> Path:
    """Write the page of a run, `report.html` in its folder by default; the run may be running.

    Raises:
        ValueError: If the folder holds no run that has begun, its file is damaged, or the page
            cannot be written there.
        OSError: If a file cannot be read or written.
    """
    path = out or run.path / "report.html"
    if path.is_dir():
        raise ValueError(f"{path}: is a folder, expected a file for the page")
    feed = Feed(run)
    figures = feed.figures()
    if not figures["run_id"]:
        raise ValueError(f"{run.place}: the run has not started, expected one that has")
    if out is None:
        make_folder(run.path)  # a run in a database may have its folder on another machine
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    replace_text(path, to_html(figures, blocks(feed)))
    return path


def blocks(feed: Feed) -> Iterator[Block]:
    """The texts of all iterations in order; raises as the methods of `Feed` do.

    A block is compressed in a thread while the next one is read.
    """
    size, last = 0, list[Future[Block]]()
    with ThreadPoolExecutor(max_workers=1) as packer:
        for first, found in feed.blocks(ITERATIONS):
            texts = json.dumps(found).encode("ascii")
            size += len(texts)
            if size > MAX_PAGE:
                raise ValueError(f"texts of more than {MAX_PAGE:,} bytes, too many for one page")
            # One block ahead: reading and packing overlap, and two blocks at most are in memory.
            last.append(packer.submit(_block, first, texts))
            if len(last) > 1:
                yield last.pop(0).result()
        for each in last:
            yield each.result()


def _block(first: int, texts: bytes) -> Block:
    # mtime=0: the same run gives the same file.
    packed = compress(texts, COMPRESSION_LEVEL, mtime=0)
    return Block(first, b64encode(packed).decode("ascii"))


def to_html(figures: Json, blocks: Iterable[Block]) -> str:
    """The self-contained page of a run, from what `Feed.figures` gave and all texts."""
    return _render({**figures, "is_live": False}, blocks, policy(is_live=False))


def live_html(figures: Json) -> str:
    """The page that asks its server for what is new, and for texts."""
    return _render({**figures, "is_live": True}, (), policy(is_live=True))


@cache
def policy(*, is_live: bool) -> str:
    """The content security policy of a run's page; a live one may connect to its own server."""
    return _policy_of(_script(), _style(), is_live=is_live)


@cache
def index_policy() -> str:
    """The content security policy of the index."""
    return _policy_of(_index_script(), _index_style(), is_live=True)


def _policy_of(script: str, style: str, *, is_live: bool) -> str:
    def hash_of(text: str) -> str:
        return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"

    connect = "'self'" if is_live else "'none'"
    return POLICY.format(script=hash_of(script), style=hash_of(style), connect=connect)


def embedded_json(value: object) -> str:
    """A value as JSON that can stand inside a script element: ASCII without `<`, `>` and `&`.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def index_html(rows: Json) -> str:
    """The page that shows rows of an index and asks its server for changed ones."""
    return _template("index.html").render(
        policy=Markup(index_policy()),  # noqa: S704  our own text
        style=Markup(_index_style()),  # noqa: S704  our own files
        script=Markup(_index_script()),  # noqa: S704  our own files
        data=Markup(embedded_json(rows)),  # noqa: S704  escaped for this place
    )


def _render(data: Mapping[str, object], blocks: Iterable[Block], allowed: str) -> str:
    heading = data["heading"]
    facts = heading if isinstance(heading, Mapping) else {}
    title = f"{facts.get('problem')}, {facts.get('method')}, {facts.get('model')}"
    return _template("page.html").render(
        # A name may hold lone surrogates, which a UTF-8 page cannot.
        title=title.encode("utf-8", "replace").decode("utf-8"),
        policy=Markup(allowed),  # noqa: S704  our own text
        style=Markup(_style()),  # noqa: S704  our own file
        script=Markup(_script()),  # noqa: S704  our own files
        data=Markup(embedded_json(data)),  # noqa: S704  escaped for this place
        blocks=blocks,
    )


def _template(name: str) -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string((FILES / name).read_text("utf-8"))


@cache
def _style() -> str:
    return f"\n{(FILES / 'page.css').read_text('utf-8')}"


@cache
def _index_style() -> str:
    """The style of the page of a run, and what the index adds."""
    return f"{_style()}\n{(FILES / 'index.css').read_text('utf-8')}"


@cache
def _script() -> str:
    return _one_script(_scripts_in(FILES / "scripts"))


@cache
def _index_script() -> str:
    shared = [FILES / "scripts" / name for name in SHARED_SCRIPTS]
    return _one_script([*shared, *_scripts_in(FILES / "index_scripts")])


def _scripts_in(folder: Traversable) -> list[Traversable]:
    """The scripts of a folder in the order of their names."""
    parts = sorted(folder.iterdir(), key=lambda part: part.name)
    return [part for part in parts if part.name.endswith(".js")]


def _one_script(parts: Iterable[Traversable]) -> str:
    """Scripts as one function, so that they share names with each other and with nothing else."""
    text = "\n".join(part.read_text("utf-8") for part in parts)
    return f'\n"use strict";\n(() => {{\n{text}}})();\n'
