"""Dollars to reach the same validation score: races, full evaluations, and GEPA.

Install GEPA in an environment of its own:

    python -m venv peers && peers/bin/pip install gepa
    python bench/racing.py --gepa peers/bin/python

All improve the same prompt on the same 60 examples, with 60 validation examples and the same
stand-ins for the two models. The prompt lists rules, and each example needs one of 10. The model
under test answers right with a chance of 0.92 if the rule is in the prompt, else of 0.25; nine of
ten answers depend on the example alone, the tenth on the whole prompt, as with a model that is not
deterministic. The proposing model sees failed examples with the rule that they needed. It adds such
a rule (half of its answers), rewords the prompt (a fifth), adds a rule and drops two (a sixth), or
forgets half of them. A proposal costs $0.01 and an answer of the model under test $0.001. GEPA runs
with its defaults and shows the proposing model its minibatch of three, CostAda the three worst
examples; its method is `uniform`, as guides know nothing here.

`dollars` are those spent when a prompt first has the target on all validation examples, or at the
cap where none had. Means are over seeds, with 95 % bootstrap intervals; `ratio` is the geometric
mean of the ratios to full evaluations, paired by seed. `wrong` counts the rejected candidates that
all examples would have shown to be better than their rival.

Decided before the seeds from 0 on were run (others served to make the world neither too easy nor
too hard): 30 seeds, the target 0.75, the cap of 150 proposals, the errors of 0.1 and 0.3, and what
is expected: races cost at most 0.75 of full evaluations, and no larger share of the rejections is
wrong than the error.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from hashlib import sha256
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean
from threading import Lock

NUM_RULES, NUM_EXAMPLES, NUM_KNOWN = 10, 60, 2
TARGET, MAX_PROPOSALS, SEEDS = 0.75, 150, 30
PROPOSAL, ANSWER = 0.01, 0.001
NEEDS = "needs rule "


def uniform(*parts: object) -> float:
    """A number in [0, 1) that only depends on the parts."""
    digest = sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def rules_of(prompt: str) -> list[int]:
    """The rules that a prompt lists."""
    lines = prompt.splitlines()
    return [int(line.removeprefix("- rule ")) for line in lines if line.startswith("- rule ")]


def prompt_of(rules: list[int], wording: int) -> str:
    """A prompt that lists rules."""
    return "\n".join([f"Wording {wording}.", *(f"- rule {rule}" for rule in rules)])


class World:
    """The data, the two models, and the bill of one search."""

    def __init__(self, seed: int) -> None:
        """Draw the examples of a seed."""
        rng = Random(seed)
        self.seed = seed
        self.examples = self._examples("train", rng)
        self.validation = self._examples("validation", rng)
        self.start = prompt_of(rng.sample(range(NUM_RULES), NUM_KNOWN), 0)
        self.num_proposals = self.num_answers = 0
        self.reached: float | None = None
        self._validated: dict[str, dict[str, float]] = defaultdict(dict)
        self._lock = Lock()

    @staticmethod
    def _examples(name: str, rng: Random) -> list[dict[str, object]]:
        # Common rules first: rule 0 is needed four times as often as the last one.
        weights = [4 - 3 * rule / NUM_RULES for rule in range(NUM_RULES)]
        drawn = rng.choices(range(NUM_RULES), weights, k=NUM_EXAMPLES)
        return [{"id": f"{name}-{number}", "rule": rule} for number, rule in enumerate(drawn)]

    @property
    def dollars(self) -> float:
        """The bill so far."""
        return PROPOSAL * self.num_proposals + ANSWER * self.num_answers

    @property
    def is_over(self) -> bool:
        """Whether the target is reached, or the proposals are used up."""
        return self.reached is not None or self.num_proposals >= MAX_PROPOSALS

    def score(self, prompt: str, example: dict[str, object]) -> float:
        """Whether the model under test answers right; costs nothing."""
        name = example["id"]
        is_own = uniform(self.seed, name, prompt, "own") < 0.1
        draw = uniform(self.seed, name, prompt if is_own else "")
        return float(draw < (0.92 if example["rule"] in rules_of(prompt) else 0.25))

    def answer(self, prompt: str, example: dict[str, object]) -> float:
        """The same as a paid answer."""
        score, name = self.score(prompt, example), str(example["id"])
        with self._lock:
            self.num_answers += 1
            if name.startswith("validation"):
                known = self._validated[prompt]
                known[name] = score
                is_there = len(known) == NUM_EXAMPLES and fmean(known.values()) >= TARGET
                if is_there and self.reached is None:
                    self.reached = self.dollars
        return score

    def propose(self, prompt: str, needed: list[int]) -> str:
        """A changed prompt, given the rules that some failed examples needed."""
        self.num_proposals += 1
        rng = Random(f"{self.seed}/{self.num_proposals}/{prompt}")
        rules, wording, kind = rules_of(prompt), rng.randrange(10**6), rng.random()
        missing = [rule for rule in needed if rule not in rules]
        if 0.5 <= kind < 0.7:
            return prompt_of(rules, wording)
        if kind >= 0.7 + 1 / 6:
            return prompt_of(rng.sample(rules, len(rules) // 2), wording)
        if kind >= 0.7:
            rules = rng.sample(rules, max(0, len(rules) - 2))
        return prompt_of([*rules, *missing[:1]], wording)


def search(seed: int, error: float, parents: str) -> dict[str, float]:
    """The bill of a search by CostAda, and its rejections."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from fakes import ScriptedModel

    from costada import Problem, create_discovery_graph
    from costada.store.run_store import RunStore

    world = World(seed)

    def reply(request: str) -> str:
        shown = request.partition("# Current program\n")[2].partition("```markdown\n")[2]
        needed = [int(part.split()[0]) for part in shown.split(NEEDS)[1:]]
        prompt = world.propose(shown.partition("\n```")[0], needed)
        return f"```markdown\n{prompt}\n```"

    def score_example(prompt: str, example: dict[str, object]) -> dict[str, object]:
        rule = example["rule"]
        return {
            "combined_score": world.answer(prompt.strip(), example),
            "feedback": f"{NEEDS}{rule} ",
        }

    problem = Problem(
        name="rules",
        task="Find the instructions that solve most examples.",
        initial_program=world.start,
        language="Markdown",
        score_example=score_example,
        examples=world.examples,
        validation=world.validation,
        racing_error=error,
    )
    store = RunStore()
    # Guides know nothing here, so the method is one without them.
    settings = {"price": "10,0", "method": "uniform", "seed": seed, "parents": parents}
    settings["max_iterations"] = MAX_PROPOSALS
    graph = create_discovery_graph(
        problem, ScriptedModel(answer=reply), budget=1000.0, store=store, **settings
    )
    for _ in graph.stream({}, stream_mode="custom"):
        if world.is_over:
            break
    wrong = rejected = 0
    run_id = store.run_ids()[-1]
    for each in store.candidates.originals(run_id):
        if not 0 < len(each.examples) < NUM_EXAMPLES:
            continue
        rival = each
        while len(rival.examples) < NUM_EXAMPLES:
            rival = store.candidates.get(run_id, str(rival.parent_id))
        own = fmean(world.score(each.program.text.strip(), one) for one in world.examples)
        rejected, wrong = rejected + 1, wrong + (own > rival.score)
    return {**bill(world), "rejected": rejected, "wrong": wrong}


def bill(world: World) -> dict[str, float]:
    """What a search has cost when it ended."""
    return {
        "dollars": world.dollars if world.reached is None else world.reached,
        "is_reached": world.reached is not None,
        "proposals": world.num_proposals,
        "answers": world.num_answers,
    }


def search_with_gepa(seed: int) -> dict[str, float]:
    """The bill of a search by GEPA, in whose environment this is called."""
    import gepa
    from gepa.core.adapter import EvaluationBatch

    world = World(seed)

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch, candidate, capture_traces=False):  # type: ignore[no-untyped-def]
            scores = [world.answer(candidate["prompt"], each) for each in batch]
            traces = list(zip(batch, scores, strict=True)) if capture_traces else None
            return EvaluationBatch(outputs=list(scores), scores=scores, trajectories=traces)

        def make_reflective_dataset(self, candidate, evaluated, components):  # type: ignore[no-untyped-def]
            failed = [example["rule"] for example, score in evaluated.trajectories if not score]
            return {"prompt": [{"rule": rule} for rule in failed]}

    def propose(candidate, reflective, components):  # type: ignore[no-untyped-def]
        needed = [each["rule"] for each in reflective["prompt"]]
        return {"prompt": world.propose(candidate["prompt"], needed)}

    class Silent:
        def log(self, message: str) -> None:
            """Say nothing."""

    gepa.optimize(
        seed_candidate={"prompt": world.start},
        trainset=world.examples,
        valset=world.validation,
        adapter=Adapter(),
        custom_candidate_proposer=propose,
        stop_callbacks=[lambda state: world.is_over],
        seed=seed,
        logger=Silent(),
        display_progress_bar=False,
    )
    return bill(world)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and ends of the 95 % bootstrap interval."""
    rng = Random(0)
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(4000))
    return fmean(values), means[100], means[-101]


def interval_text(mean: float, low: float, high: float) -> str:
    """An interval as a cell of the table."""
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gepa", type=Path, help="Python of an environment with gepa.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only-gepa", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_gepa is not None:
        print(json.dumps(search_with_gepa(given.only_gepa)))
        return
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    bills: dict[str, list[dict[str, float]]] = {
        "full evaluations": [search(seed, 0.0, "method") for seed in seeds],
        "races, error 0.1": [search(seed, 0.1, "method") for seed in seeds],
        "races, error 0.3": [search(seed, 0.3, "method") for seed in seeds],
        "full evaluations, parents = pareto": [search(seed, 0.0, "pareto") for seed in seeds],
        "races, error 0.1, parents = pareto": [search(seed, 0.1, "pareto") for seed in seeds],
    }
    if given.gepa:
        command = [str(given.gepa), __file__, "--only-gepa"]
        said = (subprocess.check_output([*command, str(seed)]) for seed in seeds)
        bills["GEPA"] = [json.loads(line.splitlines()[-1]) for line in said]
    full = bills["full evaluations"]
    print("| search | dollars | ratio | reached | proposals | answers | wrong |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, rows in bills.items():
        pairs = zip(rows, full, strict=True)
        ratios = interval([log(own["dollars"] / other["dollars"]) for own, other in pairs])
        rejected = sum(row.get("rejected", 0) for row in rows)
        wrong = sum(row.get("wrong", 0) for row in rows)
        cells = (
            *(name, interval_text(*interval([row["dollars"] for row in rows]))),
            interval_text(*map(exp, ratios)),
            f"{sum(row['is_reached'] for row in rows)} of {len(rows)}",
            f"{fmean(row['proposals'] for row in rows):.0f}",
            f"{fmean(row['answers'] for row in rows):,.0f}",
            f"{wrong} of {rejected}" if rejected else "",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main())
