"""What the proposition's instances show, as tables for a person and as JSON for a program."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from costada.experiments.theory.proposition import (
    NUM_URNS,
    POLICIES,
    SEED_SCORE,
    TOTAL_GAIN,
    Finding,
    Instance,
    Share,
)

NAME_WIDTH, CELL_WIDTH = 20, 5

Cell = Callable[[Share], float]


def theory_text(findings: Sequence[Finding]) -> str:
    """Return the shares of OPT as tables, one per K and one of the worst places."""
    num_steps = max(finding.instance.num_steps for finding in findings)
    names = _different_names(findings)
    tables = [
        _table(
            f"Share of OPT, K = {count}, mean over the {count} places of the cheap frontier",
            [finding for finding in findings if finding.instance.num_frontiers == count],
            names,
            lambda share: share.mean,
        )
        for count in sorted({finding.instance.num_frontiers for finding in findings})
    ]
    worst = _table(
        f"Share of OPT at the worst place, B/c = {num_steps}",
        [finding for finding in findings if finding.instance.num_steps == num_steps],
        names,
        lambda share: share.worst,
    )
    return "\n\n".join([*tables, worst])


def theory_json(findings: Sequence[Finding], conclusions: Sequence[str]) -> str:
    """Return everything that was computed as one JSON object."""
    return json.dumps(
        {
            "seed_score": SEED_SCORE,
            "total_gain": TOTAL_GAIN,
            "num_urns": NUM_URNS,
            "policies": [
                {
                    "name": policy.name,
                    "is_cost_blind": policy.is_cost_blind,
                    "is_method": policy.is_method,
                }
                for policy in POLICIES
            ],
            "rows": [_row(finding) for finding in findings],
            "conclusions": list(conclusions),
        },
        indent=2,
    )


def _row(finding: Finding) -> dict[str, object]:
    instance = finding.instance
    shares = {name: asdict(share) for name, share in finding.shares.items()}
    return {**asdict(instance), "bound": instance.bound, "shares": shares}


def _different_names(findings: Sequence[Finding]) -> list[str]:
    """Return the policies to print: of methods with the same shares throughout, the first."""
    shares = {
        policy.name: tuple(finding.shares[policy.name] for finding in findings)
        for policy in POLICIES
    }
    first = {values: name for name, values in reversed(shares.items())}
    return [name for name, values in shares.items() if first[values] == name]


def _table(title: str, findings: Sequence[Finding], names: Sequence[str], cell: Cell) -> str:
    instances = [finding.instance for finding in findings]
    lines = [title, *_heads(instances), _line("bound", [_number(each.bound) for each in instances])]
    lines += [
        _line(name, [_number(cell(finding.shares[name])) for finding in findings]) for name in names
    ]
    return "\n".join(lines)


def _heads(instances: Sequence[Instance]) -> list[str]:
    """Return the lines that name what differs between the columns."""
    symbols = {"K": "num_frontiers", "kappa": "cost_ratio", "B/c": "num_steps"}
    columns = {
        symbol: [str(getattr(instance, field)) for instance in instances]
        for symbol, field in symbols.items()
    }
    return [_line(symbol, cells) for symbol, cells in columns.items() if len(set(cells)) > 1]


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _number(value: float) -> str:
    return f"{value:.2f}"
