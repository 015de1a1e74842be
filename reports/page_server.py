"""Live pages of runs and their index on the loopback address; a reader may add ideas to a run."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from email.message import Message
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from secrets import token_urlsafe
from threading import Lock
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit

from costada.reports.page.feed import Feed, Json
from costada.reports.page.page import index_html, index_policy, live_html, policy
from costada.reports.run_index import WAITING, RunIndex
from costada.reports.run_metrics import METRICS_PATH, METRICS_TYPE, metrics_text
from costada.store.address import StorePlace, is_there
from costada.store.outage import DatabaseUnavailable
from costada.store.run_store import RunStore
from costada.store.user_inputs import MAX_WAITING, TOO_MANY, InputKind, checked_idea
from costada.values.numbering import Iteration

MAX_BODY = 2**15
"""Bytes of a request with an idea, more than the longest idea has in any spelling."""

KEY = "idea"
NOT_STARTED = "the run has not started"


class BadRequest(Exception):
    """A request that is refused: its status, and the reason as its text."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def waiting(database: StorePlace) -> dict[str, object]:
    """The inputs that wait for a step of a run, oldest first, in JSON types; none before it begins.

    Of a program only the number is shown. Raises as `RunStore` does.
    """
    if not is_there(database):
        return {"waiting": []}
    with RunStore.at(database, is_read_only=True) as store:
        run_ids = store.run_ids()
        found = store.inputs.waiting(run_ids[-1]) if run_ids else []
    return {
        "waiting": [
            {
                "number": each.number,
                "kind": each.kind.value,
                "idea": each.text if each.kind is InputKind.TACTIC else None,
            }
            for each in found
        ]
    }


def read_idea(headers: Message, body: BufferedIOBase) -> object:
    """The idea that a request holds as JSON: `{"idea": TEXT}`.

    Raises:
        BadRequest: It is not JSON of this form, too large, or does not say how large it is.
    """
    if headers.get_content_type() != "application/json":
        raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
    # Digits first: int() refuses thousands of them with an error of its own.
    if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
        raise BadRequest(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MAX_BODY:,} bytes"
        )
    try:
        known: Any = json.loads(body.read(int(length)))
    except (ValueError, RecursionError):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "expected JSON") from None
    if not isinstance(known, dict) or known.keys() != {KEY}:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f'expected {{"{KEY}": TEXT}}')
    return known[KEY]


def add_idea(database: StorePlace, idea: object) -> int:
    """Put an idea into a run and return its number.

    Raises:
        BadRequest: The idea is refused, the run has not started, or too many inputs wait in it.
        ValueError: The run file is damaged.
        OSError: The run file cannot be written.
    """
    try:
        text = checked_idea(idea)
    except ValueError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, str(error)) from None
    if not is_there(database):
        raise BadRequest(HTTPStatus.CONFLICT, NOT_STARTED)
    with RunStore.at(database) as store:
        if not (run_ids := store.run_ids()):
            raise BadRequest(HTTPStatus.CONFLICT, NOT_STARTED)
        if len(store.inputs.waiting(run_ids[-1])) >= MAX_WAITING:
            raise BadRequest(HTTPStatus.CONFLICT, TOO_MANY)
        return store.inputs.put_idea(run_ids[-1], text)


TOKEN_BYTES = 32
STRONG = re.compile(r"[\w-]{32,}", re.ASCII)
SCHEME = "bearer "
REFUSAL = "open the address that the command printed: it ends with a token\n"


def new_token() -> str:
    """A random token that is safe in a URL."""
    return token_urlsafe(TOKEN_BYTES)


def token_in(variable: str) -> str:
    """The token in an environment variable, empty if there is none.

    Raises:
        ValueError: It is too short, or would have to be quoted in a URL.
    """
    token = os.environ.get(variable, "")
    if token and not STRONG.fullmatch(token):
        raise ValueError(
            f"{variable}: expected at least 32 letters, digits, _ and -, such as those that"
            " `openssl rand -hex 32` prints"
        )
    return token


def shows_token(token: str, query: str, authorization: str) -> bool:
    """Whether a request shows the token, in its query or its authorization header."""
    given = parse_qs(query).get("token", [])
    if authorization[: len(SCHEME)].lower() == SCHEME:
        given.append(authorization[len(SCHEME) :])
    # In constant time: how long a refusal takes tells nothing of the token.
    return any(compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in given)


LOOPBACK = "127.0.0.1"
NOTHING_ALLOWED = "default-src 'none'"
HTML, JSON, TEXT = "text/html", "application/json", "text/plain"
INDEX = re.compile(r"/index/(\d{1,12})")
OF_RUN = re.compile(r"(?:/runs/(?P<name>.+))?/(?P<rest>(?:[a-z]+(?:/\d{1,12}(?:-\d{1,12})?)?)?)")
"""A path of the run at the watched path, or of a run below it by its name in the index."""

FIGURES = re.compile(r"figures/(\d{1,12})")
TEXTS = re.compile(r"texts/(\d{1,12})(?:-(\d{1,12}))?")
MAX_ITERATIONS = 100
"""Iterations whose texts one answer holds."""

IDEAS = "ideas"
MAX_FEEDS = 8
"""Runs whose figures stay in memory."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Answer(NamedTuple):
    """What is sent: the type of the content, the content, and what a page is allowed."""

    kind: str
    text: str
    policy: str


class PageServer(ThreadingHTTPServer):
    """Answers for the runs of an index.

    It is bound to the loopback address, so no other machine reaches it. A request must show the
    token in `address`, since other users of this machine can connect too. It must name this server
    as its host, and as its origin if it names one, which refuses pages from other sites after DNS
    rebinding.
    """

    daemon_threads = True
    # A command that is started again gets its port back at once.
    allow_reuse_address = True

    def __init__(
        self,
        index: RunIndex,
        port: int = 0,
        on_begin: Callable[[str], None] | None = None,
        token: str = "",
        purse_files: Sequence[Path] = (),
    ) -> None:
        """Bind the server; port 0 takes any free one, and an empty token stands for a new one.

        `on_begin` is called with the kind of the index when a run begins where there was none. The
        metrics have the purses in `purse_files`.

        Raises:
            OSError: If the port is taken.
        """
        self.index, self.purse_files = index, purse_files
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._lock = Lock()
        self._on_begin = on_begin if self.index.kind == WAITING else None
        self._outage_since: datetime | None = None
        try:
            super().__init__((LOOPBACK, port), PageHandler)
        except OSError as error:
            reason = f"{error.strerror}, expected a free port"
            raise OSError(error.errno, reason, f"{LOOPBACK}:{port}") from None
        self.token = token or new_token()
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    def outage_since(self) -> str:
        """When the first request failed since the database was last reached."""
        self._outage_since = since = self._outage_since or datetime.now()
        return f"{since:%H:%M:%S}"

    def end_outage(self) -> None:
        """Note that the database was reached."""
        self._outage_since = None

    def service_actions(self) -> None:
        """Look for the first run; called about twice a second."""
        if self._on_begin and (kind := self.index.kind) != WAITING:
            self._on_begin(kind)
            self._on_begin = None

    def feed(self, name: str) -> Feed:
        """The figures of a run by its name in the index; raises `LookupError` if there is none."""
        run = self.index.run(name)
        with self._lock:
            # A feed holds the figures of a whole run; a reader of many runs would fill the memory.
            found = self._feeds.setdefault(name, Feed(run))
            self._feeds.move_to_end(name)
            while len(self._feeds) > MAX_FEEDS:
                self._feeds.popitem(last=False)
        return found

    @property
    def address(self) -> str:
        """The page's URL, with its token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request: the page, figures beyond an iteration, texts of some, or an idea."""

    server: PageServer
    server_version = "costada"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    # Ends the thread of a connection that a browser keeps open.
    timeout: ClassVar[float] = 60.0

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._answer(has_body=False)

    def do_POST(self) -> None:
        """Put an idea into the run and answer with its number."""
        wanted = urlsplit(self.path)
        # what is left of a refused request must not be read as the next one
        self.close_connection = True
        try:
            if refusal := self._refusal(wanted.query):
                status, text = refusal
                self._send(status, _plain(text), has_body=True)
                return
            found = OF_RUN.fullmatch(wanted.path)
            if not found or found["rest"] != IDEAS:
                raise LookupError(wanted.path)
            run = self.server.index.run(found["name"] or "")
            number = add_idea(run.database, read_idea(self.headers, self.rfile))
            self._send(HTTPStatus.CREATED, _json({"number": number}), has_body=True)
        except LookupError:
            self._send(HTTPStatus.NOT_FOUND, _plain("not found\n"), has_body=True)
        except BadRequest as error:
            self._send(error.status, _plain(f"{error}\n"), has_body=True)
        except (ValueError, OSError, sqlite3.Error) as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _plain(f"{error}\n"), has_body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal belongs to the command."""

    def _answer(self, *, has_body: bool) -> None:
        wanted = urlsplit(self.path)
        if refusal := self._refusal(wanted.query):
            status, text = refusal
            self._send(status, _plain(text), has_body)
            return
        try:
            answer = self._page(wanted.path)
        except LookupError:
            self._send(HTTPStatus.NOT_FOUND, _plain("not found\n"), has_body)
        except DatabaseUnavailable as error:
            since = self.server.outage_since()
            words = (
                f"Waiting for the database, since {since} ({error.strerror}): {error.filename}\n"
            )
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _plain(words), has_body)
        except (ValueError, OSError, sqlite3.Error) as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _plain(f"{error}\n"), has_body)
        else:
            self.server.end_outage()
            self._send(HTTPStatus.OK, answer, has_body)

    def _refusal(self, query: str) -> tuple[HTTPStatus, str] | None:
        """The answer to a request that is refused, `None` if it is not."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "not this host\n"
        origin = self.headers.get("Origin")
        if origin is not None and origin not in self.server.origins:
            return HTTPStatus.FORBIDDEN, "not this origin\n"
        if not shows_token(self.server.token, query, self.headers.get("Authorization", "")):
            return HTTPStatus.UNAUTHORIZED, REFUSAL
        return None

    def _page(self, path: str) -> Answer:
        """The answer to a path; raises `LookupError` if there is none."""
        index = self.server.index
        if path == "/" and not index.is_one_run:
            return Answer(HTML, index_html(index.rows()), index_policy())
        if path == METRICS_PATH:
            text = metrics_text(index, purse_files=self.server.purse_files)
            return Answer(METRICS_TYPE, text, NOTHING_ALLOWED)
        if wanted := INDEX.fullmatch(path):
            return _json(index.rows(int(wanted[1])))
        if not (found := OF_RUN.fullmatch(path)):
            raise LookupError(path)
        name, rest = found["name"] or "", found["rest"]
        if rest == IDEAS:
            return _json(waiting(index.run(name).database))
        feed = self.server.feed(name)
        if not rest:
            return Answer(HTML, live_html(feed.figures()), policy(is_live=True))
        if wanted := FIGURES.fullmatch(rest):
            return _json(feed.figures(Iteration(int(wanted[1]))))
        if wanted := TEXTS.fullmatch(rest):
            first, last = int(wanted[1]), int(wanted[2] or wanted[1])
            if last - first < MAX_ITERATIONS:
                return _json({"texts": feed.texts(Iteration(first), Iteration(last))})
        raise LookupError(path)

    def _send(self, status: HTTPStatus, answer: Answer, has_body: bool) -> None:
        body = answer.text.encode("utf-8", "replace")
        self.send_response(status)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", answer.policy)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            # The reader has closed the page.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)


def _plain(text: str) -> Answer:
    return Answer(TEXT, text, NOTHING_ALLOWED)


def _json(found: Json) -> Answer:
    text = json.dumps(found, allow_nan=False, separators=(",", ":"))
    return Answer(JSON, text, NOTHING_ALLOWED)
