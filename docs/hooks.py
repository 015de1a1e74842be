"""What the site does with a page beyond what MkDocs does."""

import json
import logging
import re
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority

ROOT = Path(__file__).parents[1]
NAMED_BLOCK = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
SHORT_CODE = re.compile(r"<code>([^<\n]{1,28})</code>")
REMOTE_ASSET = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>"
)
LINKS = TemporaryDirectory()

LOG = logging.getLogger("mkdocs.hooks.costada")


@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the packages by their import path.

    The repository root is the package `costada`. Following a link to the root would read the
    environment, too, so each package is linked for itself.
    """
    package = Path(LINKS.name, "costada")
    package.mkdir(exist_ok=True)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {name.split(".")[1] for name in settings["packages"] if "." in name}
    for name in ("__init__.py", "py.typed", *rooms):
        if not (package / name).exists():
            (package / name).symlink_to(ROOT / name)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [LINKS.name]
    return config


def on_page_markdown(markdown: str, **_: object) -> str:
    """Show the file names of code blocks."""
    return NAMED_BLOCK.sub(r'```\1 title="\2"', markdown)


def on_page_content(html: str, **_: object) -> str:
    """Mark short code in a line of text, which the style sheet keeps on one line."""
    return SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def on_post_page(output: str, page: object, **_: object) -> str:
    """Warn about what a page would fetch from another host; a strict build then fails."""
    for asset in REMOTE_ASSET.findall(output):
        LOG.warning("%s fetches %s", page, asset)
    return output


def on_post_build(config: MkDocsConfig) -> None:
    """Write index and worker of the search as scripts, for pages opened as files.

    The plug-in `offline` of the theme would load a part of this from another host.
    """
    site = Path(config.site_dir)
    [worker] = site.glob("assets/javascripts/workers/search.*.js")
    index = (site / "search" / "search_index.json").read_text()
    (site / "search" / "search_index.js").write_text(f"var __index = {index}")
    source = json.dumps(worker.read_text())
    (site / "search" / "worker.js").write_text(f"var searchWorker = {source}")


def on_shutdown() -> None:
    """Remove the links."""
    LINKS.cleanup()
