"""How far the expected cost of an attempt is from what recorded attempts cost.

Prints mean tokens and dollars of the recorded attempts of GLM-5 on circle packing whose tokens are
known, at the price of the preset, and below them what forecasts and routers expect.
"""

from statistics import fmean

from costada.controller.constants import Constants
from costada.evaluators.registry import problem
from costada.nodes.attempts import ordinary_input
from costada.nodes.calls.bounds import EXPECTED_ANSWER
from costada.plugins.lab.landscape.landscape_menu import EXPECTED_TOKENS
from costada.plugins.lab.recorded.table import recorded_guides, recorded_transitions
from costada.runs.setting_types import PRESETS
from costada.values.usage import Usage, call_cost


def line(name: str, usages: list[Usage]) -> str:
    """A row of the table."""
    price = PRESETS["glm-5"].price
    tokens_in = fmean(each.input_tokens for each in usages)
    tokens_out = fmean(each.output_tokens for each in usages)
    dollars = fmean(float(call_cost(each, price)) for each in usages)
    return f"{name:34}{len(usages):6}{tokens_in:9,.0f}{tokens_out:9,.0f}{dollars:10.4f}"


def main() -> None:
    """Print the table."""
    recorded: dict[str, list[Usage]] = {}
    for each in recorded_transitions():
        if each.tokens is not None and not each.is_capped:
            recorded.setdefault(each.method, []).append(each.tokens)
    print(f"{'':34}{'calls':>6}{'in':>9}{'out':>9}{'dollars':>10}")
    for method, usages in recorded.items():
        print(line(f"recorded attempts, {method}", usages))
    print(line("recorded attempts, all", [each for group in recorded.values() for each in group]))
    print(line("recorded guides", list(recorded_guides())))
    tokens = ordinary_input(problem("circle_packing"), Constants())
    print(line("expected, circle_packing", [Usage(tokens, EXPECTED_ANSWER)]))
    print(line("expected, simulated worlds", [EXPECTED_TOKENS]))


if __name__ == "__main__":
    main()
