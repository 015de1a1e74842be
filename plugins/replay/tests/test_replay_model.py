"""Which recorded answer a request gets, and what it is charged."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from needed_plugins import needs_plugin

from costada import problem
from costada.models.chat_models import chat_model
from costada.models.prices import price_book
from costada.prompts.changes import read_change
from costada.prompts.reply_parts import fenced
from costada.prompts.requests import PromptData
from costada.prompts.tactics import Tactic
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Program
from costada.values.usage import Price, Usage

RECORDINGS = Path(__file__).parents[3].parent / "shared" / "recordings" / "circle_packing.jsonl.gz"
needs_recordings = pytest.mark.skipif(
    not RECORDINGS.is_file(), reason=f"needs the recordings in {RECORDINGS.parent}"
)

PROGRAM = "def f():\n    return 1\n"
BLOCK = "<<<<<<< SEARCH\n    return {}\n=======\n    return {}\n>>>>>>> REPLACE"


def line(parent, name, context=None, **fields):
    """A recorded answer; its text is its name."""
    known = {
        "kind": "proposal",
        "run": "r",
        "response": name,
        "parent_score": parent,
        "best_context_score": context,
        "guided": False,
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "cost": 0.002,
    }
    return known | fields


@pytest.fixture
def model_of(tmp_path):
    """The replay model of some lines: model_of([...], seed=0)."""

    def make(lines, seed=0):
        path = tmp_path / "answers.jsonl"
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        return chat_model(f"replay:{path}", seed=seed)

    return make


def prompt(score=0.5, others=(), program=PROGRAM, kind="generation", **data):
    asked = PromptData(
        kind, program, score, others=[""] * len(others), other_scores=list(others), **data
    )
    return [SystemMessage("Task"), HumanMessage("Improve.", additional_kwargs=asked.kwargs)]


def answers(model, messages, tickets=200):
    """The different answers that a prompt gets from many tickets."""
    config = ({"metadata": {"costada_ticket": ticket}} for ticket in range(tickets))
    return {model.invoke(messages, each).text for each in config}


def test_the_ten_answers_of_the_nearest_parents_serve_and_no_others(model_of):
    # The request's place is that of the parent with score .50 among 21: ten are .45 and .05 or
    # less away in ranks below and above, and the tenth is as far as the eleventh.
    model = model_of([line(place / 20, f"a{place}") for place in range(21)])
    assert answers(model, prompt(0.5)) == {f"a{place}" for place in range(5, 16)}


def test_scores_are_compared_by_rank_so_that_gaps_between_them_do_not_count(model_of):
    scores = [0.1, 0.2, *(0.99 + place / 1000 for place in range(9)), 0.9999]
    model = model_of([line(score, f"{score:.4f}") for score in scores])
    # twelve answers; the two of the lowest ranks are farthest from the best, although .98 of the
    # way from .1 to .99 would be nearer to it in units of the score
    assert answers(model, prompt(0.9999)) == {f"{score:.4f}" for score in scores[2:]}


def test_a_parent_better_than_all_gets_the_answers_to_the_best(model_of):
    model = model_of([line(place / 100, f"a{place}") for place in range(1, 31)])
    assert answers(model, prompt(5.0)) == {f"a{place}" for place in range(21, 31)}


def test_the_best_program_shown_counts_as_much_as_the_parent(model_of):
    lines = [line(0.5, f"alone {k}") for k in range(10)]
    lines += [line(0.5, f"beside {k}", context=0.96) for k in range(10)]
    model = model_of(lines)
    assert answers(model, prompt(0.5)) == {f"alone {k}" for k in range(10)}
    shown = answers(model, prompt(0.5, others=[0.1, 0.96, 0.2]))
    assert shown == {f"beside {k}" for k in range(10)}


def test_answers_to_a_tactic_serve_requests_with_one_and_all_where_there_are_none(model_of):
    plain, guided = line(0.5, "plain"), line(0.5, "guided", guided=True)
    both = model_of([plain, guided])
    assert answers(both, prompt(approach="numpy.exp")) == {"guided"}
    assert answers(both, prompt()) == {"plain"}
    assert answers(model_of([plain]), prompt(approach="numpy.exp")) == {"plain"}


def test_equal_requests_get_equal_answers_and_other_tickets_and_seeds_others(model_of):
    lines = [line(0.5, f"a{k}") for k in range(50)]
    model, again, other = model_of(lines), model_of(lines), model_of(lines, seed=1)

    def drawn(asked):
        tickets = ({"metadata": {"costada_ticket": ticket}} for ticket in range(30))
        return [asked.invoke(prompt(), each).text for each in tickets]

    assert drawn(model) == drawn(again) != drawn(other)
    assert len(set(drawn(model))) > 10


def test_run_times_in_a_prompt_make_no_difference(model_of):
    model = model_of([line(0.5, f"a{k}") for k in range(50)])
    texts = set()
    for seconds in range(20):
        system, user = prompt()
        user.content = f"- eval_time: {seconds}.5\nImprove."
        texts.add(model.invoke([system, user]).text)
    assert len(texts) == 1


def test_blocks_that_fit_the_parent_are_sent_raw_and_others_as_the_recorded_program(model_of):
    fitting, foreign = BLOCK.format("1", "2"), BLOCK.format("7", "8")
    code = "def f():\n    return 8\n"
    assert answers(model_of([line(0.5, fitting, code=code)]), prompt()) == {fitting}
    sent = answers(model_of([line(0.5, foreign, code=code)]), prompt())
    assert sent == {f"```python\n{code.strip()}\n```"}
    assert answers(model_of([line(0.5, foreign)]), prompt()) == {foreign}
    files = prompt(program={"a.py": PROGRAM})
    assert answers(model_of([line(0.5, foreign, code=code)]), files) == {foreign}


def test_a_call_is_charged_the_tokens_and_dollars_of_its_answer(model_of):
    # two models, so that no pair of rates explains all costs
    costs = {"a": 0.002, "b": 0.0107, "c": 0.5}
    model = model_of([line(0.5, name, cost=cost) for name, cost in costs.items()])
    for ticket in range(20):
        answer = model.invoke(prompt(), {"metadata": {"costada_ticket": ticket}})
        assert answer.response_metadata["token_usage"]["cost"] == costs[answer.text]
        usage = answer.usage_metadata
        assert (usage["input_tokens"], usage["output_tokens"]) == (1000, 100)
    book = price_book([(model, None)], {})
    listed = book.listed(model._llm_type)
    assert listed.worst_cost(1000, 100) >= Decimal("0.5")


def test_rates_that_explain_every_cost_are_those_of_the_model(model_of):
    tokens = [(5802, 4653), (6092, 3760), (100, 9)]
    lines = [
        line(0.5, "a", prompt_tokens=i, completion_tokens=o, cost=(0.72 * i + 2.30 * o) / 1e6)
        for i, o in tokens
    ]
    assert model_of(lines).recorded_price == Price("0.72", "2.3")


def test_of_an_answer_longer_than_its_limit_nothing_is_left(model_of):
    model = model_of([line(0.5, "a")])
    whole = model.bind(max_tokens=100).invoke(prompt())
    cut = model.bind(max_tokens=99).invoke(prompt())
    assert (whole.text, whole.response_metadata["finish_reason"]) == ("a", "stop")
    assert (cut.text, cut.response_metadata["finish_reason"]) == ("", "length")
    assert cut.usage_metadata["output_tokens"] == 99
    # "Task" and "Improve." have twelve bytes, so they are charged no more tokens
    assert whole.usage_metadata["input_tokens"] == 12


def test_a_guide_gets_the_recorded_answer_of_a_guide(model_of):
    guides = [
        {**line(k / 20, f"guide {k}"), "kind": "guide", "best_context_score": None}
        for k in range(20)
    ]
    model = model_of([line(0.5, "a"), *guides])
    asked = prompt(0.0, kind="guide", mode="breakthrough")
    assert answers(model, asked) == {f"guide {k}" for k in range(10)}


def test_without_recorded_guides_recorded_tactics_are_drawn_at_the_cost_of_a_guide(model_of):
    lines = [
        line(
            0.5,
            f"a{k}",
            guided=True,
            role="generation",
            guide_text={"idea": f"idea {k}", "how": "so"},
            iteration_calls=2,
            iteration_input_tokens=1700,
            iteration_output_tokens=130,
            iteration_cost=0.0031,
        )
        for k in range(5)
    ]
    model = model_of(lines)
    answer = model.invoke(prompt(kind="guide", mode="breakthrough"))
    tactics = [Tactic.model_validate(each) for each in json.loads(answer.text)["ideas"]]
    assert len({each.idea for each in tactics}) == 3
    assert answer.usage_metadata["input_tokens"] == 700
    assert answer.usage_metadata["output_tokens"] == 30
    assert answer.response_metadata["token_usage"]["cost"] == pytest.approx(0.0011)


@pytest.mark.parametrize("kind", ["guide", "labels", "strategy"])
def test_a_question_without_a_recorded_answer_gets_a_sentence_free_of_charge(model_of, kind):
    answer = model_of([line(0.5, "a")]).invoke(prompt(kind=kind))
    assert answer.text == "No answer to a question like this is recorded."
    assert answer.response_metadata["token_usage"]["cost"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"regime": "capped"},
        {"guide_state": "operator"},
        {"guide_state": "title_only"},
        {"parent_failed": True},
        {"parent_score": None},
        {"response": None},
        {"kind": "migrant"},
        {"run": "e", "method": "evox", "valid": True},
    ],
)
def test_answers_to_other_prompts_are_left_out(model_of, fields):
    assert answers(model_of([line(0.5, "a"), {**line(0.5, "b"), **fields}]), prompt()) == {"a"}


def test_a_run_of_evox_that_kept_its_failures_is_used(model_of):
    evox = {"run": "e", "method": "evox"}
    lines = [line(0.5, "a", valid=True, **evox), line(0.5, "b", valid=False, **evox)]
    assert answers(model_of(lines), prompt()) == {"a", "b"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cost": -1}, "cost: got -1, expected dollars of at least 0"),
        ({"cost": float("nan")}, "cost: got NaN, expected dollars of at least 0"),
        ({"prompt_tokens": 1.5}, "prompt_tokens: got 1.5, expected an integer of at least 0"),
        ({"parent_score": "high"}, 'parent_score: got "high", expected a finite number'),
        ({"best_context_score": []}, "best_context_score: got [], expected a finite number"),
        ({"guided": 1}, "guided: got 1, expected true or false"),
        ({"response": 5}, "response: got 5, expected a string"),
        ({"code": 5}, "code: got 5, expected a string"),
        ({"guide_text": "x"}, "expected an object with the strings idea and how"),
        ({"kind": None}, "kind: got null, expected proposal or guide"),
    ],
)
def test_a_bad_field_is_named_with_file_and_line(model_of, tmp_path, changed, words):
    with pytest.raises(ValueError, match=r"answers\.jsonl, line 2: ") as caught:
        model_of([line(0.5, "a"), {**line(0.5, "b"), **changed}])
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def test_a_missing_field_is_named(model_of):
    lines = [line(0.5, "a")]
    del lines[0]["completion_tokens"]
    with pytest.raises(ValueError, match="line 1: completion_tokens: got null, expected an int"):
        model_of(lines)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "got no line of kind 'proposal'"),
        (b"{}\n[1]", "kind: got null"),
        (b"[1]\n", "line 1: got '[1]', expected a JSON object"),
        (b'{"kind": ', "line 1: got no JSON"),
        (b"\xff\xfe", "cannot be read as recorded answers"),
        (gzip.compress(b"{}" * 100, mtime=0)[:-12], "cut short"),
        (b"\x1f\x8bnothing", "cannot be read as recorded answers"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, words):
    path = tmp_path / "answers.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"answers\.jsonl") as caught:
        chat_model(f"replay:{path}")
    assert words in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.jsonl: cannot be read .*No such file"):
        chat_model(f"replay:{tmp_path / 'missing.jsonl'}")
    with pytest.raises(ValueError, match='"replay": got no file, expected "replay:FILE"'):
        chat_model("replay:")


@needs_plugin("lab")
def test_the_answers_of_a_run_are_exported_and_replayed_and_a_stopped_replay_goes_on(
    invoke, tmp_path
):
    recorded, answer_file = tmp_path / "recorded", tmp_path / "answers.jsonl"

    def run(folder, *options, command="run"):
        where = ("landscape", "--out", folder) if command == "run" else (folder,)
        result = invoke(command, *where, *options, "--quiet")
        assert result.exit_code == 0, result.output
        steps = [json.loads(each) for each in (folder / "steps.jsonl").read_text().splitlines()]
        return [[each[name] for name in ("score", "spent", "events", "failure")] for each in steps]

    run(recorded, "--model", "simulated", "--max-iterations", 30, "--seed", 1)
    export = ("export", recorded, "--to", "jsonl", "--table", "answers", "--out", answer_file)
    assert invoke(*export).exit_code == 0
    rows = [json.loads(each) for each in answer_file.read_text().splitlines()]
    calls = invoke("export", recorded, "--to", "jsonl", "--table", "calls").stdout.splitlines()
    assert [each["kind"] for each in rows].count("seed") == 1
    assert [row["cost"] for row in rows[1:]] == [json.loads(each)["dollars"] for each in calls]
    proposals = {each["id"]: each for each in rows if each["kind"] in ("seed", "proposal")}
    children = [each for each in proposals.values() if each["parent_id"] in proposals]
    assert len(children) > 5
    for each in children:
        assert each["parent_score"] == proposals[each["parent_id"]]["score"]
    assert any(each["guided"] for each in children)

    replay = ("--model", f"replay:{answer_file}", "--seed", 2)
    whole = run(tmp_path / "whole", *replay, "--max-iterations", 12)
    run(tmp_path / "parts", *replay, "--max-iterations", 5)
    parts = run(tmp_path / "parts", "--max-iterations", 12, command="resume")
    assert parts == whole
    scores = {row["score"] for row in rows}
    assert {score for score, *_ in whole} <= {None, *scores}
    usage = {
        (row["prompt_tokens"], row["completion_tokens"], row["cost"])
        for row in rows
        if row["kind"] != "seed"
    }
    calls = invoke("export", tmp_path / "whole", "--to", "jsonl", "--table", "calls").stdout
    for each in map(json.loads, calls.splitlines()):
        assert (each["input_tokens"], each["output_tokens"], each["dollars"]) in usage


@needs_recordings
def test_recorded_answers_make_the_programs_that_were_recorded():
    model = chat_model(f"replay:{RECORDINGS}")
    known = model.answers
    assert (len(known.proposals), len(known.tactics), len(known.guide_bills)) == (385, 164, 12)
    assert known.rates == Price("0.72", "2.3")
    assert known.guide_bills[0].usage == Usage(5340, 974)
    packing = problem("circle_packing")
    seed = Program.of(packing.initial_program)
    kinds = {"rejected": 0, "as recorded": 0, "repaired": 0}
    for each in known.proposals:
        blocks = "<<<<<<< SEARCH" in each.text
        text = fenced(each.code, "python") if blocks and each.code else each.text
        found = read_change(text, seed, packing.form)
        if isinstance(found, Rejection):
            kinds["rejected"] += 1
        elif found.program.text.strip() == each.code.strip():
            kinds["as recorded"] += 1
        else:
            kinds["repaired"] += 1
    assert kinds == {"as recorded": 273, "repaired": 102, "rejected": 10}
