"""`langgraph.json`: the file is valid, and `langgraph dev` serves searches with it."""

import subprocess

import pytest
from langgraph_server import CLI, ROOT, answer, needs_langgraph_cli, refusal, served

from costada.store.address import shown_address
from costada.store.run_store import RunStore

pytestmark = [pytest.mark.process, needs_langgraph_cli]


def test_the_configuration_is_valid():
    checked = subprocess.run([CLI, "validate"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "langgraph.json is valid. (1 graph found)" in checked.stdout


def test_a_served_search_spends_its_own_budget_or_what_an_assistant_chooses_within_limits(tmp_path):
    order = {"assistant_id": "costada", "input": {"seed": 1}, "config": {"recursion_limit": 25}}
    order["context"] = {"budget": 0.08}
    limits = {"COSTADA_BUDGET": "0.08", "COSTADA_CHOOSE_SETTINGS": "max_iterations"}
    with served(tmp_path, **limits) as address:
        found = answer(address, "runs/wait", order)
        again = answer(address, "runs/wait", order)
        refused = [
            refusal(address, "runs/wait", {"assistant_id": "costada", **given})
            for given in (
                {"input": {"budget": 0.005}},
                {"input": {}, "config": {"configurable": {"max_failures": 5}}},
                {"input": {}, "context": {"budget": 0.09}},
                {"input": {}, "context": {"budget": 0.01, "settings": {"max_failures": 5}}},
                {"input": {}, "context": {"bugdet": 0.01}},
                {"input": {}},
            )
        ]
        schema = answer(address, "assistants/search", {"graph_id": "costada"})[0]["assistant_id"]
        schema = answer(address, f"assistants/{schema}/schemas")["context_schema"]
        few = {"budget": 0.02, "settings": {"max_iterations": 1}}
        made = {"graph_id": "costada", "name": "few", "context": few}
        assistant = answer(address, "assistants", made)["assistant_id"]
        thread = answer(address, "threads", {})["thread_id"]
        run = {"assistant_id": assistant, "input": {"seed": 1}}
        chosen = answer(address, f"threads/{thread}/runs/wait", run)
        kept = answer(address, f"threads/{thread}/state")["values"]["chosen"]
    assert found["stop_reason"] == "budget", (tmp_path / "log").read_text()[-2000:]
    assert found["iterations"] > 3
    assert found["spent"] >= 0.08
    assert found["best_program"]
    assert again["best_program"] == found["best_program"]
    assert again["spent"] == found["spent"]
    assert "input: got key 'budget', expected seed" in refused[0]
    assert "got key 'max_failures', which is not read there" in refused[1]
    assert "budget: got 0.09, expected less than or equal to 0.08" in refused[2]
    assert "Unknown setting 'settings.max_failures'" in refused[3]
    assert all("context: budget: is missing" in each for each in refused[4:])
    assert (schema["properties"]["budget"]["maximum"], schema["required"]) == (0.08, ["budget"])
    assert (chosen["iterations"], chosen["stop_reason"], kept) == (1, "iterations", few)


def test_a_served_search_keeps_its_programs_and_calls_in_postgres(tmp_path, postgres_address):
    order = {"assistant_id": "costada", "input": {"seed": 1}, "context": {"budget": 0.02}}
    with served(
        tmp_path, COSTADA_BUDGET="0.02", COSTADA_STORE=shown_address(postgres_address)
    ) as address:
        found = answer(address, "runs/wait", order)
    assert found.get("stop_reason") == "budget", found
    with RunStore.postgres(postgres_address, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        spent = store.ledger.spent(run_id, found["iterations"])
        assert float(spent) == found["spent"]
        best = store.last_improvement(run_id)
        assert store.candidates.get(run_id, best).program.text == found["best_program"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "COSTADA_STORE",
            "postgresql://h/d#run",
            "store: got 'an address with #RUN', expected postgresql:",
        ),
        ("COSTADA_BUDGET", "much", "COSTADA_BUDGET: got 'much', expected dollars such as 1.0"),
        ("COSTADA_PROBLEM", "circle_paking", "did you mean 'circle_packing'?"),
        ("COSTADA_MODEL", "ofline", "did you mean 'offline'?"),
        ("COSTADA_MODELS", "offline,ofline", "Did you mean 'offline'?"),
        ("COSTADA_PURSE", "purse.sqlite", "COSTADA_PURSE: got one without COSTADA_PURSE_BUDGET"),
        ("COSTADA_PURSE_BUDGET", "much", "COSTADA_PURSE_BUDGET: got 'much', expected dollars"),
        ("COSTADA_BUDGET_POLICY", "soft", "budget_policy: got 'soft', expected 'crossing' or"),
        ("COSTADA_ON_EXHAUSTED", "ask", "on_exhausted: got 'ask', expected 'stop' or 'interrupt'"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(monkeypatch, name, value, text):
    from costada.agents.served import graph_by_environment

    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as refused:
        graph_by_environment()
    assert text in str(refused.value)


def test_one_model_beside_several_is_refused(monkeypatch):
    from costada.agents.served import graph_by_environment

    monkeypatch.setenv("COSTADA_MODEL", "offline")
    monkeypatch.setenv("COSTADA_MODELS", "offline,simulated")
    with pytest.raises(ValueError, match="COSTADA_MODEL: got offline with COSTADA_MODELS"):
        graph_by_environment()
