"""Requests of every kind, with every part that a prompt may have present and absent."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from costada.plugins.evox.prompts import (
    SearchWindow,
    ShownStrategy,
    StrategyRequest,
    insight_prompt,
    strategy_prompt,
)
from costada.prompts.render import Prompt, generation_prompt, guide_prompt
from costada.prompts.requests import (
    FailedAttempt,
    GenerationRequest,
    GuideRequest,
    PreviousAttempt,
    ProgramView,
    Siblings,
)
from costada.prompts.tactics import Tactic, TriedTactic

CODE = "# EVOLVE-BLOCK-START\ndef pack():\n    return {}\n# EVOLVE-BLOCK-END\n"
PARENT = ProgramView(CODE.format(1), 0.36424, {"sum_radii": 0.95976}, {})
ENTIRE = replace(
    PARENT,
    code=CODE.format("1  # " + "x" * 600),
    artifacts={"feedback": "corner is empty", "stderr": "a" * 2100},
    error="circles overlap",
)
OTHERS = (
    ProgramView("def pack():\n    return 2\n", 0.5, {}, {}, error="circles overlap"),
    ProgramView("def pack():\n    '''```'''\n    return 3\n", 0.75, {"area": 1.5}, {}),
    ProgramView("def pack():\n    return 4\n", 0.25, {"area": 0.5}, {}),
)
TACTIC = Tactic(
    idea="Solve for all radii\nat once",
    description="Set up one linear program.\nSolve it for fixed centres.",
    approach_type="scipy.optimize.linprog",
)
FAILURES = (FailedAttempt("NameError: np", "def pack():\n    return np\n"), FailedAttempt("Empty."))
PREVIOUS = (
    PreviousAttempt(8, 0.7, 0.6, "pack: on a grid", {"sum_radii": 1.4}),
    PreviousAttempt(12, 0.5, 0.6, "pack: at random", {}),
    PreviousAttempt(3, 0.5, 0.5, "", {}),
)
PLAIN = GenerationRequest("  Pack {{ 26 }}\ncircles.\n", PARENT, "balanced", (), 360.0, None)
GUIDE = GuideRequest("Pack 26 circles.", "def evaluate(p): ...", PARENT, "refinement", (), 600.0, 3)
STRATEGY = ShownStrategy("class Strategy:\n    pass\n", 0.133334, 10, 25, 0.5, 0.8, "None found.")
WINDOW = SearchWindow(iteration=27, max_iterations=100, horizon=10, threshold=0.01)
NEW = StrategyRequest("Pack.", WINDOW, "## Population\n\nStuck.", "- size: 3", STRATEGY, ())

Render = Callable[..., Prompt]
"""Takes an order, if there is a choice."""


def generation_requests() -> Iterator[tuple[str, GenerationRequest]]:
    parts = product(
        (PARENT, ENTIRE, OTHERS[0]),
        ("exploration", "exploitation", "balanced"),
        ((), OTHERS),
        (None, "breakthrough", "refinement"),
        (None, Siblings(0.5, (0.9, 0.5009, 0.4991, 0.502, 0.498, 0.75))),
        (None, *FAILURES),
    )
    for number, (current, action, others, mode, siblings, failure) in enumerate(parts):
        yield (
            f"generation {number}",
            replace(
                PLAIN,
                current=current,
                action=action,
                others=others,
                entry_point="pack" if others else None,
                tactic=TACTIC if mode else None,
                tactic_mode=mode,
                siblings=siblings,
                failure=failure,
            ),
        )
    parts = product(
        (PARENT, ENTIRE), ((), OTHERS), ((), PREVIOUS), ((), FAILURES), ("", "REFINE: x")
    )
    for number, (current, others, previous, failures, label) in enumerate(parts):
        yield (
            f"evox generation {number}",
            replace(
                PLAIN,
                current=current,
                others=others,
                previous=previous,
                earlier_failures=failures,
                label=label,
                label_name="refine" if label else "",
            ),
        )


def guide_requests() -> Iterator[tuple[str, GuideRequest]]:
    tried = (TriedTactic(TACTIC, 0.0), TriedTactic(TACTIC, 0.25))
    parts = product((PARENT, ENTIRE), ("breakthrough", "refinement"), ((), tried))
    for number, (best, mode, tactics) in enumerate(parts):
        yield f"guide {number}", replace(GUIDE, best=best, mode=mode, tried=tactics)


def strategy_requests() -> Iterator[tuple[str, StrategyRequest]]:
    others = (STRATEGY, replace(STRATEGY, source="class Strategy:\n    OTHER = 1\n"))
    parts = product(("", NEW.insight), ((), others), (None, *FAILURES))
    for number, (insight, context, failure) in enumerate(parts):
        request = replace(NEW, insight=insight, context=context, failure=failure)
        yield f"strategy {number}", request


def rendered() -> Iterator[tuple[str, Render]]:
    """Every sample by name, with what renders it."""
    for name, request in generation_requests():
        yield name, lambda *order, request=request: generation_prompt(request, *order)
    for name, guide in guide_requests():
        yield name, lambda *order, request=guide: guide_prompt(request, *order)
    for name, strategy in strategy_requests():
        yield name, lambda *order, request=strategy: strategy_prompt(request, *order)
    for count in range(3):
        yield (
            f"insight {count}",
            lambda *order, count=count: insight_prompt(
                "Pack.", "- candidates: 3", (STRATEGY,) * count, None, *order
            ),
        )
