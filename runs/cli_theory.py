"""`costada theory`: the paper's proposition, played without a model and without money."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from costada.runs import cli_options as options
from costada.runs.exit_codes import ExitCode
from costada.runs.refusal import refusing

if TYPE_CHECKING:
    from costada.runs.theory.proposition import Finding

FRONTIERS = (2, 4, 8)
COST_RATIOS = (2, 5, 10, 50)
NUM_STEPS = (50, 500, 2000)
LINE_WIDTH = 80
STEM = "theory"

FigureFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for theory.json, theory.svg and theory.png.",
        show_default="none",
        rich_help_panel=options.OUTPUT,
    ),
]


def theory(out: FigureFolder = None, as_json: options.Json = False) -> None:
    """Play the paper's proposition: equal gains, one cheap frontier. Costs nothing, needs no key.

    Prints which share of the best possible gain each method obtains, beside the bound for methods
    that do not look at cost.
    """
    from costada.runs.theory.conclusions import conclusions
    from costada.runs.theory.proposition import findings
    from costada.runs.theory.text import theory_json, theory_text

    with refusing(ExitCode.BAD_INPUT):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    with refusing(ExitCode.FAILED):
        found = findings(FRONTIERS, COST_RATIOS, NUM_STEPS)
        sentences = conclusions(found)
        record = theory_json(found, sentences)
        if out is not None:
            _write(found, record, out)
    if as_json:
        print(record)
        return
    print(
        theory_text(found),
        *(fill(each, LINE_WIDTH, break_on_hyphens=False) for each in sentences),
        sep="\n\n",
    )


def _write(found: list[Finding], record: str, out: Path) -> None:
    from costada.runs.folder import replace_text
    from costada.runs.theory.figure import write_theory_figure

    replace_text(out / f"{STEM}.json", f"{record}\n")
    write_theory_figure(found, [out / f"{STEM}.svg", out / f"{STEM}.png"])
