"""The command that settles requests in doubt by what their provider has billed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.formats import counted
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode
from costada.runs.shared_purse import PurseAddress

if TYPE_CHECKING:
    from costada.models.provider_bills import BilledUsage
    from costada.runs.reconcile import KnownRun, ReconciledRuns
    from costada.runs.reconciliation import SentCall

Places = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Run folders, folders of runs, postgresql://USER@HOST/DATABASE or one run of it"
        " as DSN#RUN.",
    ),
]
BillFile = Annotated[
    Path,
    options.path_option(
        "The provider's export of usage as CSV: of OpenRouter's activity, OpenAI's or Anthropic's"
        " usage.",
        "--bill",
        metavar="FILE",
    ),
]
Since = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Beginning of the time that the export covers, in UTC.",
        show_default="its first line",
    ),
]
Until = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="End of that time, in UTC; at most when its file was written.",
        show_default="its last line",
    ),
]
PurseOption = Annotated[
    PurseAddress | None,
    options.option(
        "The purse that the runs drew from; the money returns to it.",
        "--purse",
        metavar="PLACE#NAME",
        parser=PurseAddress.read,
    ),
]
IsDryRun = Annotated[bool, typer.Option("--dry-run", help="Print the result, change nothing.")]

SHOWN = 10
"""Lines of requests in a list."""


def reconcile(
    places: Places,
    bill: BillFile,
    since: Since = "",
    until: Until = "",
    purse: PurseOption = None,
    is_dry_run: IsDryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Settle the requests of runs whose bill is unknown by what their provider has billed."""
    with refusing(ExitCode.BAD_INPUT):
        from costada.runs.reconcile import reconcile_runs

        done = reconcile_runs(
            places, bill, since=since, until=until, purse=purse, is_dry_run=is_dry_run
        )
        if as_json:
            show(json.dumps(_facts(done), indent=2))
            return
        for line in _words(done, is_dry_run=is_dry_run):
            show(line)


def _words(done: ReconciledRuns, *, is_dry_run: bool) -> list[str]:
    lines = done.bill.lines
    words = [
        f"Export of {done.bill.provider}: {counted(len(lines), 'line')},"
        f" {_time(lines[0].begins)} to {_time(max(each.ends for each in lines))} UTC"
    ]
    words += [_run_words(run, done) for run in done.runs]
    reasons = Counter(done.found.in_doubt.values())
    words += [f"In doubt still, {number}: {reason}" for reason, number in reasons.items()]
    if differing := done.found.differing:
        words.append(
            f"{counted(len(differing), 'known request')} cost other dollars by the bill than by the"
            " ledger, which stays as it is:"
        )
        words += [
            f"  {call.row.provider_id} of ticket {call.key.ticket}: ${call.row.cost:.6f} by the"
            f" ledger, ${dollars:.6f} by the bill"
            for call, dollars in differing[:SHOWN]
        ]
    if unknown := done.found.unexplained:
        words.append(
            f"Lines of the export that belong to none of these runs: {len(unknown)}"
            f"{_dollars_of(unknown)}"
        )
    if is_dry_run:
        words.append("Nothing was changed")
    return words


def _run_words(run: KnownRun, done: ReconciledRuns) -> str:
    settled, open_calls = _settled(run, done), _in_doubt(run, done)
    billed = sum((dollars for _, dollars in settled), Decimal(0))
    most = sum((call.most for call, _ in settled), Decimal(0))
    words = f"{run.folder.place}: {counted(len(run.sent), 'request')}"
    if settled:
        words += f"; {len(settled)} settled, ${billed:.6f} were billed of at most ${most:.6f}"
    if open_calls:
        left = sum((each.row.bound for each in open_calls), Decimal(0))
        words += f"; {len(open_calls)} in doubt, at most ${left:.6f}"
    return words


def _facts(done: ReconciledRuns) -> dict[str, Any]:
    """The result in JSON types; dollars are exact, as text."""
    return {
        "provider": done.bill.provider,
        "lines": len(done.bill.lines),
        "known": done.found.known,
        "runs": [
            {
                "run": run.folder.place,
                "requests": len(run.sent),
                "settled": [
                    {**_request(call), "most": f"{call.most:f}", "billed": f"{dollars:f}"}
                    for call, dollars in _settled(run, done)
                ],
                "in_doubt": [
                    {**_request(call), "most": f"{call.most:f}", "why": done.found.in_doubt[call]}
                    for call in _in_doubt(run, done)
                ],
            }
            for run in done.runs
        ],
        "differing": [
            {**_request(call), "ledger": f"{call.row.cost:f}", "bill": f"{dollars:f}"}
            for call, dollars in done.found.differing
        ],
        "unexplained": [
            {"id": each.request_id, "model": each.model, "time": _time(each.begins)}
            for each in done.found.unexplained
        ],
    }


def _request(call: SentCall) -> dict[str, object]:
    role, attempt = call.key.role, call.key.attempt
    return {"ticket": call.key.ticket, "role": role, "attempt": attempt, "number": call.number}


def _settled(run: KnownRun, done: ReconciledRuns) -> list[tuple[SentCall, Decimal]]:
    known = done.found.settled
    return [(each, known[each].dollars) for each in run.sent if each in known]


def _in_doubt(run: KnownRun, done: ReconciledRuns) -> list[SentCall]:
    return [each for each in run.sent if each in done.found.in_doubt]


def _dollars_of(lines: Sequence[BilledUsage]) -> str:
    known = [each.dollars for each in lines if each.dollars is not None]
    return f" (${sum(known, Decimal(0)):.6f})" if known else ""


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
