"""Algorithm 1 driven without models, and the controller trace that the paper prints."""

from dataclasses import dataclass, replace
from random import Random

from costada.controller.allocation import Allocation, with_best
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance, Credit
from costada.controller.guidance import Intervention, Mode, is_active
from costada.controller.method import PaidStep


@dataclass(frozen=True)
class Step:
    guide: Mode | None
    allocation: Allocation
    credit: Credit
    intervention: Intervention
    state: CostAda
    balance: Balance


def run_step(
    state: CostAda,
    balance: Balance,
    cost: float,
    score: float | None,
    constants: Constants,
    rng: Random,
    *,
    attempts: int = 1,
    num_tactics: int = 3,
) -> Step:
    allocation = state.ask(balance, rng, constants)
    guide = state.pending
    if guide is not None:
        state = state.open_cycle(num_tactics, constants) if num_tactics else state.fail_guide()
    is_guided = False
    for _ in range(attempts):
        if is_active(state.cycle):
            state, _tactic = state.use_tactic(is_first=not is_guided)
            is_guided = True
    balance = replace(balance, spent=balance.spent + cost)
    step = PaidStep(score, is_kept=True, cost=cost, is_guided=is_guided)
    state, earned = state.tell(allocation, step, balance, constants)
    state, decision = state.decide(allocation, balance, constants)
    return Step(guide, allocation, earned, decision, state, balance)


SEED_SCORE = 0.499
BUDGET = 1.0
TWO_ATTEMPTS = 14
MIGRATION = 15

TABLE = """
 t  c     f     k  I    rho   u     r     nu L     w uses event
 1 .0150 .4000  1 .500 .9850 .0000 .0000  1 .0150  0 -    exploration
 2 .0160 .5140  2 .495 .9690 .0121 .0121  0 .0000  0 -    balanced
 3 .0155 .4500  2 .478 .9535 .0000 .0000  1 .0155  0 -    -
 4 .0150 .5105  1 .484 .9385 .0088 .0000  2 .0000  0 -    -
 5 .0137 .3000  2 .468 .9248 .0000 .0000  3 .0137  0 -    -
 6 .0073 .4000  1 .464 .9175 .0000 .0000  4 .0210  0 -    schedule:breakthrough
 7 .0179 .5840  2 .461 .8996 .0557 .0557  0 .0000  2 5    guide:breakthrough,consolidation
 8 .0309 .1000  2 .150 .8687 .0000 .0000  1 .0309  1 4    exploitation
 9 .0266 .1000  2 .150 .8421 .0000 .0000  2 .0575  0 3    exploitation
10 .0085 .5797  1 .437 .8336 .0500 .0000  3 .0000  0 2    -
11 .0160 .1000  1 .421 .8176 .0000 .0000  4 .0160  0 1    -
12 .0151 .1000  1 .417 .8025 .0000 .0000  5 .0311  0 0    schedule:refinement
13 .0313 .1000  2 .412 .7712 .0000 .0000  6 .0624  0 5    guide:refinement
14 .0149 .1000  1 .403 .7563 .0000 .0000  7 .0773  0 3    -
15 .0255 .6537  2 .398 .7308 .0520 .0520  0 .0000  2 2    consolidation
16 .0196 .1000  2 .150 .7112 .0000 .0000  1 .0196  1 1    exploitation
17 .0081 .1000  2 .150 .7031 .0000 .0000  2 .0277  0 0    exploitation,schedule:refinement
18 .0361 .1000  1 .381 .6670 .0000 .0000  3 .0638  0 5    guide:refinement
19 .0146 .1000  1 .370 .6524 .0000 .0000  4 .0784  0 4    -
20 .0144 .7357  1 .366 .6380 .0620 .0620  0 .0000  2 3    consolidation
"""


@dataclass(frozen=True)
class Row:
    iteration: int
    cost: float
    score: float
    frontier: int
    intensity: str
    ratio: str
    utility: str
    reward: str
    stagnation: int
    low_yield_cost: str
    consolidation_left: int
    uses_left: int
    events: frozenset[str]


def read_rows() -> list[Row]:
    return [_row(line.split()) for line in TABLE.strip().splitlines()[1:]]


def _row(cells: list[str]) -> Row:
    iteration, cost, score, frontier, intensity, ratio, utility, reward, nu, low, w, uses, event = (
        cells
    )
    return Row(
        int(iteration),
        float(cost),
        float(score),
        int(frontier),
        intensity,
        ratio,
        utility,
        reward,
        int(nu),
        low,
        int(w),
        0 if uses == "-" else int(uses),
        frozenset() if event == "-" else frozenset(event.split(",")),
    )


def replay(num_steps: int, constants: Constants) -> list[Step]:
    state, balance, rng = CostAda.start(SEED_SCORE, constants), Balance(BUDGET), Random(0)
    steps = []
    for row in read_rows()[:num_steps]:
        attempts = 2 if row.iteration == TWO_ATTEMPTS else 1
        step = run_step(state, balance, row.cost, row.score, constants, rng, attempts=attempts)
        steps.append(step)
        state, balance = step.state, step.balance
        if row.iteration == MIGRATION:
            bests = tuple(with_best(each, state.incumbent_score) for each in state.frontiers)
            state = replace(state, frontiers=bests)
    return steps
