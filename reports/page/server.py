"""The live page of a run, served on the loopback address; a reader may add ideas to the run."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import suppress
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from costada.reports.page.feed import Feed
from costada.reports.page.ideas import BadRequest, add_idea, read_idea, waiting
from costada.reports.page.page import live_html, policy
from costada.reports.run_view import RunView

TOKEN_BYTES = 32
SCHEME = "bearer "
REFUSAL = "open the address that the command printed: it ends with a token\n"


def new_token() -> str:
    """A random token that is safe in a URL."""
    return token_urlsafe(TOKEN_BYTES)


def shows_token(token: str, query: str, authorization: str) -> bool:
    """Whether a request shows the token, in its query or its authorization header."""
    given = parse_qs(query).get("token", [])
    if authorization[: len(SCHEME)].lower() == SCHEME:
        given.append(authorization[len(SCHEME) :])
    return any(compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in given)


LOOPBACK = "127.0.0.1"
HTML, JSON, TEXT = "text/html", "application/json", "text/plain"
FIGURES = re.compile(r"/figures/(\d{1,12})")
IDEAS = "/ideas"
TEXTS = re.compile(r"/texts/(\d{1,12})")
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageServer(ThreadingHTTPServer):
    """Answers for one run; bound to the loopback address, so no other machine reaches it.

    A request must show the token in `address`, since other users of this machine can connect too.
    It must name this server as its host, and as its origin if it names one, which refuses pages
    from other sites after DNS rebinding.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, run: RunView, port: int = 0) -> None:
        """Bind the server; port 0 takes any free one.

        Raises:
            ValueError: If the folder holds no run.
            OSError: If the port is taken.
        """
        run.load()
        self.feed = Feed(run)
        self.database = run.database
        super().__init__((LOOPBACK, port), PageHandler)
        self.token = new_token()
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        self.origins = {f"http://{host}" for host in self.hosts}

    @property
    def address(self) -> str:
        """The page's URL, with its token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request: the page, figures beyond an iteration, texts of one, or an idea."""

    server: PageServer
    server_version = "costada"
    sys_version = ""
    protocol_version = "HTTP/1.1"
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
                self._send(*refusal, has_body=True)
            elif wanted.path != IDEAS:
                self._send(HTTPStatus.NOT_FOUND, TEXT, "not found\n", has_body=True)
            else:
                number = add_idea(self.server.database, read_idea(self.headers, self.rfile))
                answer = json.dumps({"number": number})
                self._send(HTTPStatus.CREATED, JSON, answer, has_body=True)
        except BadRequest as error:
            self._send(error.status, TEXT, f"{error}\n", has_body=True)
        except (OSError, sqlite3.Error) as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{error}\n", has_body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal belongs to the command."""

    def _answer(self, *, has_body: bool) -> None:
        wanted = urlsplit(self.path)
        if refusal := self._refusal(wanted.query):
            self._send(*refusal, has_body)
            return
        try:
            kind, text = self._page(wanted.path)
        except LookupError:
            self._send(HTTPStatus.NOT_FOUND, TEXT, "not found\n", has_body)
        except (ValueError, OSError, sqlite3.Error) as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{error}\n", has_body)
        else:
            self._send(HTTPStatus.OK, kind, text, has_body)

    def _refusal(self, query: str) -> tuple[HTTPStatus, str, str] | None:
        """The answer to a request that is refused, `None` if it is not."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, TEXT, "not this host\n"
        origin = self.headers.get("Origin")
        if origin is not None and origin not in self.server.origins:
            return HTTPStatus.FORBIDDEN, TEXT, "not this origin\n"
        if not shows_token(self.server.token, query, self.headers.get("Authorization", "")):
            return HTTPStatus.UNAUTHORIZED, TEXT, REFUSAL
        return None

    def _page(self, path: str) -> tuple[str, str]:
        """Content type and text of a path; raises `LookupError` if there is none."""
        feed = self.server.feed
        if path == "/":
            return HTML, live_html(feed.figures())
        if wanted := FIGURES.fullmatch(path):
            found = feed.figures(int(wanted[1]))
        elif wanted := TEXTS.fullmatch(path):
            found = {"texts": feed.texts(int(wanted[1]), int(wanted[1]))}
        elif path == IDEAS:
            found = waiting(self.server.database)
        else:
            raise LookupError(path)
        return JSON, json.dumps(found, allow_nan=False, separators=(",", ":"))

    def _send(self, status: HTTPStatus, kind: str, text: str, has_body: bool) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy(is_live=True))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)
