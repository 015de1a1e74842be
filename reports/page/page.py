"""The HTML pages of a run and of an index of runs: each runs its own script and nothing else."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from gzip import compress
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Self

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from costada.reports.page.feed import Feed, Json
from costada.reports.run_view import RunView
from costada.store.files import make_folder, replacing
from costada.values.numbering import START, Iteration

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


PARTS_MARK = b"<!-- parts -->\n"
"""Where a page has its parts; no text of a run can hold it, as all are escaped."""


class PageWriter:
    """Writes the page of a run: what no longer changes as it comes, the rest at the end.

    So the end of a long run takes no longer than that of a short one. The parts are kept in a file
    without a name, and made from the run file alone: a page that lies there may come from anybody.
    """

    def __init__(self, run: RunView, out: Path | None = None) -> None:
        """Prepare to write to a file, by default `report.html` in the run's folder.

        Raises:
            ValueError: The page cannot be written there.
        """
        self._run, self._path = run, out or run.path / "report.html"
        if self._path.is_dir():
            raise ValueError(f"{self._path}: is a folder, expected a file for the page")
        if out is None:
            make_folder(run.path)  # a run in a database may have its folder on another machine
        if not self._path.parent.is_dir():
            raise ValueError(f"{self._path}: there is no folder {self._path.parent}")
        self._feed = Feed(run)
        self._parts: IO[bytes] = TemporaryFile(dir=self._path.parent)  # noqa: SIM115 - closed in `__exit__`
        self._next, self._size = START, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def add_parts(self) -> None:
        """Add the iterations that no longer change; raises as `write` does."""
        for part in self._feed.parts(self._next, ITERATIONS):
            figures = embedded_json(part.figures).encode("ascii")
            start = b'<script type="application/json" class="rows">'
            block = self._block(part.first, part.texts)
            self._parts.write(start + figures + b"</script>\n" + block)
            self._next = Iteration(part.first + ITERATIONS)

    def write(self) -> Path:
        """Write the page; the run may be running.

        Raises:
            ValueError: The folder holds no run that has begun, or its file is damaged.
            OSError: A file cannot be read or written.
        """
        self.add_parts()
        after = Iteration(max(START, self._next - 1))
        figures = self._feed.figures(after, opens_page=True)
        if not figures["run_id"]:
            raise ValueError(f"{self._run.place}: the run has not started, expected one that has")
        page = _render({**figures, "is_live": False}, policy(is_live=False)).encode("utf-8")
        head, _, foot = page.partition(PARTS_MARK)
        with replacing(self._path) as file:
            file.write(head)
            self._parts.seek(0)
            shutil.copyfileobj(self._parts, file)
            for first, texts in self._feed.rest(self._next, ITERATIONS):
                file.write(self._block(first, texts))
            file.write(foot)
        return self._path

    def _block(self, first: Iteration, texts: Sequence[Json]) -> bytes:
        packed = json.dumps(texts).encode("ascii")
        self._size += len(packed)
        if self._size > MAX_PAGE:
            raise ValueError(f"texts of more than {MAX_PAGE:,} bytes, too many for one page")
        # mtime=0: the same run gives the same file.
        block = b64encode(compress(packed, COMPRESSION_LEVEL, mtime=0))
        start = b'<script type="application/octet-stream" class="block" data-first="%d">' % first
        return start + block + b"</script>\n"


def write_page(run: RunView, out: Path | None = None) -> Path:
    """Write the page of a run, `report.html` in its folder by default; the run may be running.

    Raises:
        ValueError: If the folder holds no run that has begun, its file is damaged, or the page
            cannot be written there.
        OSError: If a file cannot be read or written.
    """
    with PageWriter(run, out) as writer:
        return writer.write()


def live_html(figures: Json) -> str:
    """The page that asks its server for what is new, and for texts."""
    return _render({**figures, "is_live": True}, policy(is_live=True))


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


def _render(data: Mapping[str, object], allowed: str) -> str:
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
