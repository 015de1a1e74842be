"""`costada simulate`: methods compared over hundreds of seeds without a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.cli.main import CALCULATIONS, COMPARE, PluginCommand
from costada.reports.formats import counted
from costada.runs.interruption import ExitCode, ending_on_signal
from costada.runs.user_input import ALL, known_methods, known_names
from costada.store.files import result_folder
from costada.values.setting import unknown_name

if TYPE_CHECKING:
    from rich.console import Console

    from costada.plugins.lab.landscape.simulation_batch import Batch
    from costada.plugins.lab.recorded.world_scores import WorldScore

Result = TypeVar("Result")

CURVES_FILE = "simulated.curves.jsonl"
MENU_FIGURE, MENU_NUMBERS = "menus.svg", "menus.json"
FAMILY_TABLES = "family.md"

IN_FAMILY, IN_CREDIBLE, IN_FILLED = "family", "credible", "credible+alone"
"""Words for all worlds of the family, for its credible ones, and for these with `+alone`."""

Methods = Annotated[
    str | None,
    options.option(
        "Methods, a group such as peers, or all; with --menu one.",
        metavar="X,Y,...",
        show_default="all; with --menu costada",
    ),
]
World = Annotated[
    str,
    typer.Option(
        metavar="landscape|recorded|family|credible|credible+alone|NAME",
        help="Outcomes: of random landscapes, or of recorded GLM-5 runs on one problem. family: all"
        " worlds that --worlds lists, by weight; credible: those of them with weight; +alone: a"
        " prompt with nothing beside the parent counts as one with an equal program; or one world.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds for each method.")]
FirstSeed = Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")]
Budget = Annotated[float, typer.Option(metavar="DOLLARS", help="Budget of each run, GLM-5 prices.")]
Parallel = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="K",
        help="Steps in flight; above 1 and without --menu, compares K with 1 by seed.",
    ),
]
StopWhenFlat = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="Print the dollars that a run saves and the score that it loses if it ends once the"
        " posterior chance of another gain is below P; the same for a smaller budget that saves as"
        " much, and for proportional patience.",
        show_default="off",
    ),
]
Worlds = Annotated[
    bool,
    typer.Option(
        "--worlds",
        help="Score the family of recorded worlds instead: how well each predicts a recorded run"
        " that was held out, what AdaEvolve reaches in it beside the paper, and its weight.",
    ),
]
Menu = Annotated[
    str | None,
    typer.Option(
        metavar="random|FILE",
        help="Compare routers on menus of models: those of the package, or of a TOML file.",
    ),
]
Routers = Annotated[
    str | None,
    options.option(
        "Routers on the menus, or all; the first is compared with the others.",
        metavar="X,Y,...",
        show_default="all",
    ),
]
Out = Annotated[
    Path | None,
    options.path_option(
        f"Folder for {CURVES_FILE}, which costada compare reads; with --menu for"
        f" {MENU_FIGURE} and {MENU_NUMBERS}; with --world family or credible for {FAMILY_TABLES}."
    ),
]


def simulate(
    methods: Methods = None,
    world: World = "landscape",
    seeds: Seeds = 200,
    first_seed: FirstSeed = 0,
    budget: Budget = 1.0,
    jobs: options.Jobs = None,
    parallel: Parallel = 1,
    stop_when_flat: StopWhenFlat = None,
    menu: Menu = None,
    routers: Routers = None,
    worlds: Worlds = False,
    out: Out = None,
) -> None:
    """Compare methods in a simulated world: no model, no key, thousands of runs a minute.

    With --menu, compare routers on menus of several models instead; with --worlds, score worlds.
    """
    from costada.experiments.comparison.outcomes import append_outcomes
    from costada.plugins.lab.landscape.simulation_batch import (
        Batch,
        in_order,
        print_parallel,
        print_section,
        section_of_outcomes,
        simulate_batch,
    )
    from costada.plugins.lab.landscape.worlds import WORLDS
    from costada.reports.terminal import table_console

    with refusing(ExitCode.BAD_INPUT):
        _check_options(budget, routers, menu, stop_when_flat, out)
        others = (methods, menu, stop_when_flat, out)
        if worlds and (parallel > 1 or first_seed or any(each is not None for each in others)):
            raise ValueError("--worlds: got it with further options, expected --seeds and --jobs")
        families = (IN_FAMILY, IN_CREDIBLE, IN_FILLED)
        if world not in (*families, *WORLDS):
            raise ValueError(f"--world: {unknown_name('world', world, (*families, *WORLDS))}")
        is_family = world in families
        if is_family and (parallel > 1 or menu is not None or stop_when_flat is not None):
            raise ValueError(
                f"--world: got {world} with --parallel, --menu or --stop-when-flat, expected none"
            )
    if worlds:
        _print_scores(_scored_family(seeds, jobs), seeds)
        return
    chosen_seeds = tuple(range(first_seed, first_seed + seeds))
    if menu is not None:
        _compare_routers(menu, routers, methods, world, chosen_seeds, budget, jobs, parallel, out)
        return
    with refusing(ExitCode.BAD_INPUT):
        named = known_methods("--methods", methods or ALL)
        if out is not None:
            result_folder(out)
    if is_family:
        _compare_in_family(named, chosen_seeds, budget, jobs, out, world)
        return
    batch = Batch(named, chosen_seeds, budget, parallel, world)
    if stop_when_flat is not None:
        _compare_stops(batch, stop_when_flat, jobs)
        return
    num_jobs = min(jobs or os.cpu_count() or 1, len(batch.runs))
    console, started = table_console(), monotonic()
    with refusing(ExitCode.FAILED), ending_on_signal():
        with simulate_batch(batch, num_jobs) as finished:
            outcomes = in_order(batch, _with_progress(finished, len(batch.runs)))
        seconds = monotonic() - started
        if out is not None:
            unfinished = out / f"{CURVES_FILE}.part"
            unfinished.unlink(missing_ok=True)
            append_outcomes(unfinished, outcomes)
            unfinished.replace(out / CURVES_FILE)
    if parallel > 1:
        print_parallel(outcomes, parallel, batch.world, console)
    else:
        print_section(section_of_outcomes(outcomes), batch.world, console)
    _print_rate(len(outcomes), seconds, num_jobs, console)
    if out is not None:
        console.print(str(out / CURVES_FILE), markup=False, soft_wrap=True)


def _check_options(
    budget: float,
    routers: str | None,
    menu: str | None,
    stop_when_flat: float | None,
    out: Path | None,
) -> None:
    """Raise `ValueError` if a value or a combination of options makes no sense."""
    if not 0 < budget < inf:
        raise ValueError(f"--budget: got {budget:g}, expected finite dollars above 0")
    if routers is not None and menu is None:
        raise ValueError(f"--routers: got {routers} without --menu, expected both or none")
    if stop_when_flat is not None and not 0 < stop_when_flat < 1:
        raise ValueError(f"--stop-when-flat: got {stop_when_flat:g}, expected above 0, below 1")
    if stop_when_flat is not None and (menu is not None or out is not None):
        raise ValueError("--stop-when-flat: got one with --menu or --out, expected neither")


def _compare_stops(batch: Batch, threshold: float, jobs: int | None) -> None:
    """Run every method with every seed to the end and with the threshold; print what differs."""
    from costada.plugins.lab.landscape.flat_stop import (
        equal_budgets,
        flat_runs,
        print_flat,
        stopped_run,
        with_smaller_budget,
    )
    from costada.plugins.lab.processes import in_processes
    from costada.reports.terminal import table_console

    runs = flat_runs(batch)
    num_jobs = min(jobs or os.cpu_count() or 1, len(runs))
    console, started = table_console(), monotonic()
    work = partial(stopped_run, threshold=threshold, batch=batch)
    with refusing(ExitCode.FAILED), ending_on_signal():
        with in_processes(work, runs, num_jobs) as finished:
            found = _with_progress(finished, len(runs))
        budgets = equal_budgets(found, batch)
        again = partial(with_smaller_budget, budgets=budgets, batch=batch)
        with in_processes(again, found, num_jobs) as finished:
            pairs = _with_progress(finished, len(runs))
        seconds = monotonic() - started
    pairs.sort(key=lambda pair: pair[0].seed)
    print_flat(pairs, budgets, threshold, batch, console)
    _print_rate(3 * len(runs), seconds, num_jobs, console)


def _scored_family(seeds: int, jobs: int | None) -> list[WorldScore]:
    """The score of each world of the family, from so many runs in each."""
    from costada.plugins.lab.processes import in_processes
    from costada.plugins.lab.recorded.world_scores import compared_run, scored_family, scoring_runs

    runs = scoring_runs(seeds)
    num_jobs = min(jobs or os.cpu_count() or 1, len(runs))
    with refusing(ExitCode.FAILED), ending_on_signal():
        with in_processes(compared_run, runs, num_jobs) as finished:
            outcomes = dict(_with_progress(finished, len(runs)))
        return scored_family(outcomes)


def _print_scores(scores: Sequence[WorldScore], seeds: int) -> None:
    """Print the scores of the worlds, the heaviest first."""
    from costada.plugins.lab.recorded.world_scores import HEADER, printed_cutoffs, table_rows
    from costada.reports.terminal import TerminalTable, table_console

    console = table_console()
    TerminalTable(HEADER, [*table_rows(scores)], words=("world", "credible")).print(console)
    printed = ", ".join(f"{each.mean:.3f}" for each in printed_cutoffs())
    console.print(
        f"The paper prints {printed} for AdaEvolve. Loss: nats an attempt of held-out runs; in"
        f" brackets: standard errors from the paper. {seeds} seeds."
    )


def _compare_in_family(
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    budget: float,
    jobs: int | None,
    out: Path | None,
    named_worlds: str,
) -> None:
    """Score the worlds, run every method in them, and print what differs."""
    from costada.plugins.lab.processes import in_processes
    from costada.plugins.lab.recorded.family import FAMILY, FILLED
    from costada.plugins.lab.recorded.family_comparison import FamilyBatch, measure
    from costada.plugins.lab.recorded.family_report import family_tables, markdown
    from costada.plugins.lab.recorded.world_scores import SCORING_SEEDS, is_credible, weights
    from costada.reports.terminal import TerminalTable, table_console

    console = table_console()
    console.print(f"Scoring the worlds first, by {SCORING_SEEDS} runs in each.")
    scores = _scored_family(SCORING_SEEDS, jobs)
    _print_scores(scores, SCORING_SEEDS)
    by_world = {each.world: weight for each, weight in zip(scores, weights(scores), strict=True)}
    credible = [world for world in FAMILY if is_credible(by_world[world], [*by_world.values()])]
    worlds = FAMILY if named_worlds == IN_FAMILY else tuple(credible)
    if named_worlds == IN_FILLED:  # not scored: each has the weight of the world without it
        by_world |= {filled: by_world[world] for world, filled in FILLED.items()}
        worlds = tuple(FILLED.get(world, world) for world in worlds)
    batch = FamilyBatch(methods, seeds, budget, worlds)
    num_jobs, started = min(jobs or os.cpu_count() or 1, len(batch.runs)), monotonic()
    with refusing(ExitCode.FAILED), ending_on_signal():
        with in_processes(partial(measure, budget=budget), batch.runs, num_jobs) as finished:
            measured = dict(_with_progress(finished, len(batch.runs)))
        seconds = monotonic() - started
        tables = [*family_tables(measured, batch, by_world)]
        if out is not None:
            (out / FAMILY_TABLES).write_text(markdown(tables), encoding="utf-8")
    for table in tables:
        console.print(table.title)
        TerminalTable(table.header, table.rows, words=("verdict",)).print(console)
    share = sum(by_world[world] for world in batch.worlds)
    console.print(
        f"{len(batch.worlds)} worlds with {share:.1%} of the weight, {len(seeds)} seeds from"
        f" {seeds[0]}, ${budget:g}. Intervals of means by weight hold seeds and worlds, those in"
        " one world seeds; a run that does not reach a score counts its budget."
    )
    _print_rate(len(batch.runs), seconds, num_jobs, console)
    if out is not None:
        console.print(str(out / FAMILY_TABLES), markup=False, soft_wrap=True)


def _with_progress(finished: Iterator[Result], total: int) -> list[Result]:
    from rich.progress import track

    from costada.reports.terminal import SafeConsole

    console = SafeConsole(stderr=True)
    return list(
        track(finished, description="Simulating", total=total, console=console, transient=True)
    )


def _print_rate(num_runs: int, seconds: float, num_jobs: int, console: Console) -> None:
    rate = f"{num_runs / seconds * 60:,.0f} runs per minute"
    done = f"{counted(num_runs, 'run')} in {seconds:.1f} s"
    console.print(f"{done}: {rate} with {num_jobs} in parallel.")


def _compare_routers(
    menu: str,
    routers: str | None,
    methods: str | None,
    world: str,
    seeds: tuple[int, ...],
    budget: float,
    jobs: int | None,
    parallel: int,
    out: Path | None,
) -> None:
    """Run every router on every menu; print a table of each, and where the first one wins."""
    from costada.controller.methods import DEFAULT_METHOD
    from costada.plugins.lab.menus.menu_batch import COMPARED, MenuBatch, by_menu, measure_run
    from costada.plugins.lab.menus.menu_file import menus_of
    from costada.plugins.lab.menus.menu_report import (
        menu_result,
        menus_json,
        print_menu,
        print_wins,
        quality_figure,
    )
    from costada.plugins.lab.processes import in_processes
    from costada.reports.terminal import table_console

    with refusing(ExitCode.BAD_INPUT):
        named = known_methods("--methods", methods or DEFAULT_METHOD)
        if len(named) > 1:
            raise ValueError(f"--methods: got {methods} with --menu, expected one method")
        batch = MenuBatch(
            menus=menus_of(menu),
            routers=known_names("--routers", "router", routers or ALL, COMPARED),
            seeds=seeds,
            budget=budget,
            method=named[0],
            parallel=parallel,
            world=world,
        )
        if out is not None:
            result_folder(out)
    runs = batch.runs
    num_jobs = min(jobs or os.cpu_count() or 1, len(runs))
    console, started = table_console(), monotonic()
    with refusing(ExitCode.FAILED), ending_on_signal():
        with in_processes(measure_run, runs, num_jobs) as finished:
            found = by_menu(batch, _with_progress(finished, len(runs)))
        seconds = monotonic() - started
        results = [menu_result(name, batch.menus[name].about, kept) for name, kept in found.items()]
        if out is not None:
            (out / MENU_FIGURE).write_text(quality_figure(results), encoding="utf-8")
            (out / MENU_NUMBERS).write_text(menus_json(results), encoding="utf-8")
    for result in results:
        print_menu(result, console)
    print_wins(results, console)
    _print_rate(len(runs), seconds, num_jobs, console)
    if out is not None:
        for name in (MENU_FIGURE, MENU_NUMBERS):
            console.print(str(out / name), markup=False, soft_wrap=True)


COMMAND = PluginCommand(simulate, COMPARE, CALCULATIONS)
