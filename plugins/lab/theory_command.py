"""`costada theory`: a simulation of the paper's proposition."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.cli.main import CALCULATIONS, COMPARE, PluginCommand
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode
from costada.runs.user_input import split_list
from costada.store.files import result_folder
from costada.values.setting import OUTPUT

FRONTIERS = (2, 4, 8)
COST_RATIOS = (2, 5, 10, 50)
NUM_STEPS = "50,500,2000"
LINE_WIDTH = 80
STEM = "theory"

Steps = Annotated[
    str, typer.Option(metavar="N,N,...", help="Budgets, in steps on the cheap frontier (B/c).")
]
FigureFolder = Annotated[
    Path | None,
    options.path_option(
        "Folder for theory.json, theory.svg and theory.png.", show_default="none", panel=OUTPUT
    ),
]


def theory(
    steps: Steps = NUM_STEPS, out: FigureFolder = None, as_json: options.JsonResult = False
) -> None:
    """Simulate the paper's proposition: equal gains, one cheap frontier. No model, no cost.

    Prints the share of the best possible gain that each method obtains, beside the bound for
    methods that ignore cost; then the same where gains are unknown, and where they rise with the
    price.
    """
    from costada.plugins.lab.theory.proposition import findings
    from costada.plugins.lab.theory.theory_report import (
        conclusions,
        conclusions_on_unknown_gains,
        theory_json,
        theory_text,
        unknown_gains_text,
        write_theory_figure,
    )
    from costada.plugins.lab.theory.unknown_gains import learn_gains
    from costada.store.files import replace_text

    with refusing(ExitCode.BAD_INPUT):
        num_steps = _num_steps(steps)
        if out is not None:
            result_folder(out)
    with refusing(ExitCode.FAILED):
        found = findings(FRONTIERS, COST_RATIOS, num_steps)
        cases = learn_gains(num_steps, os.cpu_count() or 1)
        sentences = [*conclusions(found), *conclusions_on_unknown_gains(cases)]
        record = theory_json(found, cases, sentences)
        if out is not None:
            replace_text(out / f"{STEM}.json", f"{record}\n")
            write_theory_figure(found, cases, [out / f"{STEM}.svg", out / f"{STEM}.png"])
    if as_json:
        show(record)
        return
    lines = [fill(each, LINE_WIDTH, break_on_hyphens=False) for each in sentences]
    show("\n\n".join([theory_text(found), unknown_gains_text(cases), *lines]))


def _num_steps(text: str) -> tuple[int, ...]:
    try:
        numbers = sorted(set(map(int, split_list("--steps", text))))
    except ValueError:
        numbers = [0]
    if numbers[0] < 1:
        raise ValueError(f"--steps: got {text!r}, expected integers above 0, with commas")
    return tuple(numbers)


COMMAND = PluginCommand(theory, COMPARE, CALCULATIONS)
