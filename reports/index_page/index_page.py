"""The index of runs as HTML: it runs its own script and nothing else."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from costada.reports.index_page.run_index import Json
from costada.reports.page.page import FILES as RUN_PAGE
from costada.reports.page.page import embedded, one_script, policy_of

FILES = files("costada.reports.index_page")
SHARED_SCRIPTS = ("10_words.js", "15_shared.js")
"""Scripts of the page of a run that the index uses as well."""


def index_html(rows: Json) -> str:
    """The page that shows these rows and asks its server for changed ones."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string((FILES / "index.html").read_text("utf-8")).render(
        policy=Markup(index_policy()),  # noqa: S704  our own text
        style=Markup(_style()),  # noqa: S704  our own files
        script=Markup(_script()),  # noqa: S704  our own files
        data=Markup(embedded(rows)),  # noqa: S704  escaped for this place
    )


@cache
def index_policy() -> str:
    """The content security policy of the index."""
    return policy_of(_script(), _style(), is_live=True)


@cache
def _style() -> str:
    """The style of the page of a run, and what the index adds."""
    parts = (RUN_PAGE / "page.css", FILES / "index.css")
    return "\n" + "\n".join(part.read_text("utf-8") for part in parts)


@cache
def _script() -> str:
    shared = [RUN_PAGE / "scripts" / name for name in SHARED_SCRIPTS]
    own = sorted((FILES / "scripts").iterdir(), key=lambda part: part.name)
    parts = [*shared, *(part for part in own if part.name.endswith(".js"))]
    return one_script(part.read_text("utf-8") for part in parts)
