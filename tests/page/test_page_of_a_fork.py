"""The page of a run that was forked from another one."""

from pathlib import Path
from typing import Any

from page_runs import settings, step, write_steps

from costada.runs.page.report import write_page
from costada.store.copying import Cut, cut_back


def heading(page: Any, folder: Path) -> str:
    page.goto(write_page(folder).as_uri())
    page.wait_for_selector("#table tbody tr")
    return str(page.inner_text("#settings"))


def test_the_heading_of_a_fork_names_its_origin_and_no_path(page: Any, tmp_path: Path) -> None:
    run = settings(tmp_path / "forked")
    write_steps(run, [step(1), step(2)])
    assert "forked from" not in heading(page, run.path)
    cut_back(run.database, Cut("run", 1, 0, "/home/ann/first <b>run"), "other")
    told = heading(page, run.path)
    assert " · forked · forked from first <b>run after iteration 1 · " in told
    assert "ann" not in told
