from itertools import pairwise
from random import Random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replayed_answers import ReplayedAnswers

from costada.controller.arms import ModelOption, Money
from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.controller.router import start_router
from costada.controller.router_rules import DEFAULT_ROUTER
from costada.evaluators.registry import problem
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.models.menu import MenuModel
from costada.nodes.attempts import ordinary_input
from costada.nodes.calls.bounds import EXPECTED_ANSWER
from costada.nodes.settings import Settings
from costada.plugins.lab.landscape.landscape import drawn_landscape
from costada.plugins.lab.landscape.landscape_answers import LandscapeAnswers
from costada.plugins.lab.landscape.landscape_menu import (
    SimulatedEntry,
    SimulatedMenu,
    limited_score,
)
from costada.plugins.lab.landscape.simulation import SimulatedRun, expected_cost, simulate_run
from costada.plugins.lab.menus.menu_batch import (
    ANY,
    BEST,
    CHEAPEST,
    COMPARED,
    MOST_EXPENSIVE,
    PAPER_RULE,
    SHARES,
    Measured,
    MenuBatch,
    MenuRun,
    by_menu,
    measure_run,
    simulate_menu_run,
)
from costada.plugins.lab.menus.menu_file import DrawnMenu, FixedMenu, menus_of
from costada.plugins.lab.menus.menu_report import menu_result
from costada.plugins.lab.menus.paper_rule import PaperRule
from costada.runs.setting_types import PRESETS
from costada.runs.user_input import known_names
from costada.store.run_store import RunStore
from costada.values.usage import Price, Usage

THREE = (
    SimulatedEntry("small", 0.3, 0.3),
    SimulatedEntry("middle", 1.0, 0.6),
    SimulatedEntry("large", 3.0),
)


def menu_run(entries, rule, seed, budget=1.0, *, method="costada", parallel=1, constants=None):
    chooser = start_router(rule, [entry.name for entry in entries])
    run = SimulatedRun(
        method,
        seed,
        budget,
        constants or Constants(),
        LandscapeAnswers(drawn_landscape(seed)),
        parallel,
        SimulatedMenu(entries, chooser),
    )
    for _ in run.steps():
        pass
    return run


@pytest.mark.parametrize("method", METHODS)
def test_a_menu_with_the_worlds_own_model_changes_nothing(method):
    run = menu_run((SimulatedEntry("it", 1.0),), DEFAULT_ROUTER, 5, method=method)
    assert run.outcome().points == simulate_run(method, 5, 1.0).points


def test_a_model_at_twice_the_price_makes_the_same_run_at_twice_the_cost():
    # uniform looks at no cost and buys no guide
    constants = Constants(max_iterations=20)
    one, two = (
        menu_run(
            (SimulatedEntry("it", price),),
            "round-robin",
            3,
            9.0,
            method="uniform",
            constants=constants,
        )
        .outcome()
        .points
        for price in (1.0, 2.0)
    )
    assert len(one) == len(two) == 20
    assert [point.spent for point in two] == pytest.approx([2 * point.spent for point in one])
    assert [point.best_score for point in two] == [point.best_score for point in one]


@pytest.mark.parametrize("parallel", [1, 8])
@pytest.mark.parametrize("rule", ["budgeted-thompson", "round-robin", "ucb1", "cascade"])
def test_the_records_of_the_models_add_up_to_the_bill(rule, parallel):
    run = menu_run(THREE, rule, 7, parallel=parallel, constants=Constants(max_iterations=1000))
    paid = run.outcome().dollars_by_role
    records = run.chooser.records
    assert sum(record.dollars for record in records) == pytest.approx(
        paid["generation"] + paid["retry"], abs=1e-12
    )
    assert sum(record.tries for record in records) >= len(run.outcome().points)
    assert all(record.tries > 0 for record in records)


FACTORS = {"small": 1, "middle": 5, "large": 25}
LIST = PRESETS["glm-5"].price


def graph_run(seed, store, router, constants, budget):
    """A graph over three simulated models that differ in their price, and its trace."""

    def priced(name, factor):
        price = Price(factor * LIST.input_per_million, factor * LIST.output_per_million)
        return MenuModel(name, chat_model("simulated", seed=seed), price)

    graph = compile_search(
        problem("landscape"),
        [priced(name, factor) for name, factor in FACTORS.items()],
        guide_model=chat_model("simulated", seed=seed),
        router=router,
        budget=budget,
        settings=Settings(constants=constants, seed=seed, guide_price=LIST),
        store=store,
    )
    return list(graph.stream({}, stream_mode="custom"))


@pytest.mark.parametrize("router", ["budgeted-thompson", "cascade"])
def test_the_simulation_chooses_the_models_that_the_graph_chooses(router):
    constants = Constants(max_iterations=40, reference_cost=0.05)
    prompt_tokens = ordinary_input(problem("landscape"), constants)
    with RunStore() as store:
        rows = graph_run(3, store, router, constants, 2.0)
        (run_id,) = store.run_ids()
        answers = ReplayedAnswers(store.call_log.calls(run_id))
    entries = tuple(SimulatedEntry(name, factor) for name, factor in FACTORS.items())
    chooser = start_router(router, list(FACTORS))
    menu = SimulatedMenu(entries, chooser, Usage(prompt_tokens, EXPECTED_ANSWER))
    run = SimulatedRun("costada", 3, 2.0, constants, answers, 1, menu)
    records = [run.chooser.records for _ in run.steps()]
    assert len(rows) > 15
    assert answers.calls == []
    assert [
        [(each.name, each.credit, each.tries, each.dollars) for each in of_step]
        for of_step in records
    ] == [
        [(each["name"], each["credit"], each["tries"], each["dollars"]) for each in row["router"]]
        for row in rows
    ]
    assert [point.spent for point in run.outcome().points] == [row["spent"] for row in rows]


class Watching:
    """Chooses the models in turn, and notes what it is offered."""

    def __init__(self, names):
        self.names, self.seen, self.landed = names, [], 0

    def choose(self, options, money, attempt, rng):
        self.seen.append((self.landed, [option.launched for option in options], money))
        return self.names[len(self.seen) % len(self.names)]

    def tell(self, name, score, parent_score, dollars, *, has_reference):
        assert has_reference
        self.landed += 1
        return self


def test_offers_name_the_attempts_in_flight_and_the_money_that_they_leave():
    watching = Watching(["small", "middle", "large"])
    constants = Constants(max_iterations=30)
    answers = LandscapeAnswers(drawn_landscape(2))
    menu = SimulatedMenu(THREE, watching)
    run = SimulatedRun("uniform", 2, 5.0, constants, answers, 4, menu)
    for _ in run.steps():
        pass
    assert [launched for _, launched, _ in watching.seen[:4]] == [
        [0, 0, 0],
        [0, 1, 0],
        [0, 1, 1],
        [1, 1, 1],
    ]
    # an attempt at price 1 is expected to cost 0.014928 dollars: the middle, large and small model
    lefts = [money.left for _, _, money in watching.seen[:4]]
    assert lefts == pytest.approx([5.0, 4.985072, 4.940288, 4.9358096])
    assert all(money.budget == 5.0 for _, _, money in watching.seen)
    assert all(
        index - landed == sum(launched) for index, (landed, launched, _) in enumerate(watching.seen)
    )


def test_what_a_weaker_model_keeps_of_an_improvement():
    strong, never = SimulatedEntry("a", 1.0), SimulatedEntry("b", 1.0, success=0.0)
    small = SimulatedEntry("c", 1.0, reach=0.1)
    assert limited_score(0.9, 0.5, strong, Random(0)) == 0.9
    assert limited_score(0.9, 0.5, small, Random(0)) == pytest.approx(0.55)
    assert limited_score(0.52, 0.5, small, Random(0)) == 0.52
    for score in (0.0, 0.3, 0.5):  # a failure, a loss and no change
        assert limited_score(score, 0.5, never, Random(0)) == score
    lost = [limited_score(0.9, 0.5, never, Random(seed)) for seed in range(4000)]
    assert max(lost) < 0.5
    assert fmean(lost) == pytest.approx(0.5 * (1 - 0.137), abs=0.005)


@given(
    score=st.floats(0, 1),
    parent=st.floats(0, 1),
    success=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    seed=st.integers(0, 1000),
)
def test_a_stronger_model_keeps_every_improvement_that_a_weaker_one_keeps(
    score, parent, success, seed
):
    weak, strong = (SimulatedEntry("x", 1.0, each) for each in sorted(success))
    kept = limited_score(score, parent, weak, Random(seed))
    assert kept <= limited_score(score, parent, strong, Random(seed)) <= max(score, parent)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"price": 0.0}, "price: got 0.0, expected a finite number above 0"),
        ({"price": 1.0, "success": 1.2}, "success: got 1.2, expected a number from 0 to 1"),
        ({"price": 1.0, "reach": 0.0}, "reach: got 0.0, expected a number above 0, at most 1"),
    ],
)
def test_an_entry_outside_its_ranges_is_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        SimulatedEntry("x", **numbers)


def test_list_prices_follow_the_expected_tokens():
    # 1,360 + 4 * 1,640 tokens at 0.60 and 5,300 at 1.92 dollars per million, three times
    expected = 3 * (7920 * 0.60 + 5300 * 1.92) / 1e6
    assert expected_cost(THREE[2]) == pytest.approx(expected, rel=1e-12)


def test_the_packaged_menus_hold_the_traps_with_the_ratios_of_their_names():
    menus = menus_of("random")
    for name in ("useless-cheap-10", "useless-cheap-25", "small-steps-5", "small-steps-16"):
        cheap, strong = menus[name].of_seed(0)
        assert strong.price / cheap.price == pytest.approx(float(name.rsplit("-", 1)[1]))
    below, above = (menus[f"edge-{side}"].of_seed(0)[1] for side in ("below", "above"))
    assert expected_cost(below) < 0.07 < expected_cost(above)
    assert all(menu.about for menu in menus.values())


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.booleans())
def test_drawn_menus_stay_in_their_ranges_and_are_sorted_by_price(seed, is_ordered):
    menu = DrawnMenu(models=(2, 4), price=(0.3, 3.0), success=(0.1, 1.0), is_ordered=is_ordered)
    entries = menu.of_seed(seed)
    assert entries == menu.of_seed(seed)
    assert 2 <= len(entries) <= 4
    assert [entry.name for entry in entries] == list("abcd"[: len(entries)])
    for entry in entries:
        assert 0.3 <= entry.price <= 3.0 + 1e-12
        assert 0.1 <= entry.success <= 1.0
    for cheap, expensive in pairwise(entries):
        assert cheap.price <= expensive.price
        assert not is_ordered or cheap.success <= expensive.success


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no menu"),
        ("[a", "expected TOML"),
        ("[models.glm]\nmodel = 'offline'", "got the models of a run, expected menus of"),
        ("[a]\nmodels = [2, 4]\nprice = [1, 2]", "a: success: is missing"),
        ("[a]\nmodels = [4, 2]\nprice = [1, 2]\nsuccess = [0.1, 1]", "models is .4, 2."),
        ("[a]\nmodels = [2, 4]\nprice = [1, 2]\nsuccess = [0.1, 2]", "expected at most 1"),
        ("[a]\nmodels = [2, 4]\nprice = [0, 2]\nsuccess = [0.1, 1]", "a: price.0: got 0"),
        ("[a]\nentries = []", "a: entries"),
        ("[a]\nentries = [{ name = 'x', price = -1 }]", "price: got -1"),
        ("[a]\nentries = [{ name = 'x', price = 1 }, { name = 'x', price = 2 }]", "got x, x"),
        ("[a]\nentries = [{ name = 'x', price = 1, sucess = 1 }]", "sucess"),
    ],
)
def test_a_wrong_menu_file_is_refused_by_the_name_of_its_field(tmp_path, text, message):
    file = tmp_path / "menus.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        menus_of(str(file))


def test_a_menu_file_gives_its_models_the_cheapest_first(tmp_path):
    file = tmp_path / "menus.toml"
    file.write_text("[a]\nentries = [{ name = 'x', price = 2 }, { name = 'y', price = 1 }]")
    (menu,) = menus_of(str(file)).values()
    assert isinstance(menu, FixedMenu)
    assert [entry.name for entry in menu.of_seed(3)] == ["y", "x"]


def test_the_papers_rule_by_hand():
    constants = Constants(reference_cost=0.01)
    rule = PaperRule.start(["a", "b"], constants, 1.0)
    options, rng = [ModelOption("a", 0.01), ModelOption("b", 0.05)], Random(0)
    assert rule.choose(options, Money(1.0, 1.0), 1, rng) == "a"  # a tie: the first of the menu
    busy = [ModelOption("a", 0.01, launched=1), ModelOption("b", 0.05)]
    assert rule.choose(busy, Money(1.0, 0.99), 1, rng) == "b"
    rule = rule.tell("a", 0.5, 0.3, 0.01, has_reference=False)
    # g = 0.2; rho = 0.99, so the weight is its least, 0.25; log1p(0.01 / 0.01) = 0.693147
    reward = 0.2 / (1 + 0.25 * 0.693147)
    assert rule.arms[0].allocation_estimate == pytest.approx(0.1 * reward, rel=1e-5)
    assert rule.arms[0].visits == 1
    # a failure decays the estimate and leaves the incumbent
    rule = rule.tell("a", None, 0.5, 0.01, has_reference=False)
    assert rule.arms[0].allocation_estimate == pytest.approx(0.09 * reward, rel=1e-5)
    assert rule.incumbent_score == 0.5
    # without money there is no bonus: what brought something before is chosen
    assert rule.choose(options, Money(1.0, 0.0), 1, rng) == "a"
    assert rule.choose(options, Money(1.0, 0.98), 1, rng) == "b"


def test_a_batch_runs_every_router_and_every_model_alone():
    menu = DrawnMenu(models=(3, 3), price=(0.5, 2.0), success=(0.5, 1.0))
    batch = MenuBatch({"m": menu}, (DEFAULT_ROUTER, PAPER_RULE), (0, 1), 0.1)
    assert [(run.seed, run.router) for run in batch.runs] == [
        (seed, router)
        for seed in (0, 1)
        for router in (DEFAULT_ROUTER, PAPER_RULE, "fixed:a", "fixed:b", "fixed:c")
    ]
    found = [measure_run(run) for run in reversed(batch.runs)]
    (kept,) = by_menu(batch, found).values()
    assert [(run.router, run.seed) for run in kept[:2]] == [(DEFAULT_ROUTER, 0), (PAPER_RULE, 0)]
    of = {(run.router, run.seed): run for run in kept}
    alone = {(run.router, run.seed): run for run in found}
    for seed in (0, 1):
        models = [alone[f"fixed:{name}", seed] for name in "abc"]
        assert of[CHEAPEST, seed].scores == models[0].scores
        assert of[MOST_EXPENSIVE, seed].scores == models[2].scores
        assert of[BEST, seed].auc == max(run.auc for run in models)
        assert of[ANY, seed].auc in {run.auc for run in models}


@pytest.mark.parametrize("router", [DEFAULT_ROUTER, PAPER_RULE, "round-robin"])
def test_a_run_on_a_menu_is_reproducible_and_spends_its_budget(router):
    run = MenuRun("random", menus_of("random")["random"].of_seed(4), router, 4, 0.3)
    outcome = simulate_menu_run(run)
    assert outcome.points[-1].spent >= 0.3 > outcome.points[-2].spent
    assert simulate_menu_run(run) == outcome


def test_one_model_alone_is_a_run_with_no_other_model():
    menu = menus_of("random")["small-steps-5"]
    batch = MenuBatch({"m": menu}, (), (1,), 0.3)
    cheap, strong = menu.of_seed(1)
    assert [run.entries for run in batch.runs] == [(cheap,), (strong,)]


def hand_made(router, seed, auc, final):
    scores = tuple(final * min(1.0, 2 * share) for share in SHARES)
    return Measured("m", router, seed, auc, final, 0.01 * (seed + 1), scores)


def test_differences_are_paired_by_seed_and_money_is_where_the_mean_curves_meet():
    runs = [
        hand_made("first", 0, 0.8, 0.9),
        hand_made("first", 1, 0.6, 0.7),
        hand_made("other", 1, 0.5, 0.6),
        hand_made("other", 0, 0.75, 0.8),
        hand_made("better", 0, 0.9, 1.0),
        hand_made("better", 1, 0.9, 1.0),
    ]
    first, other, better = menu_result("m", "", runs).routers
    assert first.differences == {}
    assert first.means["overshoot"] == pytest.approx(0.015)
    assert other.differences["auc"].mean == pytest.approx(0.075)  # 0.05 and 0.1
    assert other.differences["auc"].smallest == pytest.approx(0.05)
    assert other.differences["final_score"].mean == pytest.approx(0.1)
    # the mean of the first is 1.6 times the share up to 0.5: 0.7 at 0.4375, so 0.44 on the grid
    assert other.money == pytest.approx(0.44)
    assert better.money is None
    assert better.differences["auc"].mean == pytest.approx(-0.2)


def test_routers_must_be_different_and_known():
    assert known_names("--routers", "router", "all", COMPARED) == COMPARED
    assert len(set(COMPARED)) == len(COMPARED)
    with pytest.raises(ValueError, match="Did you mean 'ucb1'"):
        known_names("--routers", "router", "ucb2", COMPARED)
    with pytest.raises(ValueError, match="expected different routers"):
        known_names("--routers", "router", "ucb1,ucb1", COMPARED)


MENU_WORDS = ("--seeds", "2", "--budget", "0.1", "--jobs", "1", "--routers", "round-robin,ucb1")


def test_the_command_prints_every_menu_and_writes_numbers_and_picture(invoke, tmp_path):
    menus = tmp_path / "menus.toml"
    menus.write_text("[pair]\nentries = [{ name = 'x', price = 1 }, { name = 'y', price = 2 }]")
    out = tmp_path / "out"
    result = invoke("simulate", "--menu", menus, *MENU_WORDS, "--out", out)
    assert result.exit_code == 0, result.output
    for word in ("pair", "round-robin", "ucb1", "fixed:best", "money", "overshoot", "menus won"):
        assert word in result.stdout
    assert "<svg" in (out / "menus.svg").read_text()
    assert '"menu": "pair"' in (out / "menus.json").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--routers", "ucb1"), "--routers: got ucb1 without --menu"),
        (("--menu", "random", "--routers", "ucb2"), "Did you mean 'ucb1'"),
        (("--menu", "random", "--methods", "costada,uniform"), "expected one method"),
        (("--menu", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_the_command_refuses_what_does_not_fit_together(invoke, words, message):
    refused = invoke("simulate", *words, "--seeds", "1")
    assert refused.exit_code == 2
    assert message in refused.output
