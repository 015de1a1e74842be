"""The page of a run as a file beside the run's other files."""

from __future__ import annotations

from pathlib import Path

from costada.runs.files import replace_text
from costada.runs.folder import RunFolder
from costada.runs.page.blocks import blocks
from costada.runs.page.feed import Feed
from costada.runs.page.page import to_html


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
