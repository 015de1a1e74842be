"""The state in checkpoints of earlier formats, as plain values in and out."""

from collections.abc import Mapping
from typing import Any

State = dict[str, Any]
"""The values of a state by key, as a checkpoint holds them."""

NOT_RESUMABLE = "not resumable"
"""Stands for the name of a type in the state of a run that no later version can resume."""

KEPT = (
    "best_program",
    "best_files",
    "best_score",
    "best_objective",
    "best_metrics",
    "pareto_front",
    "spent",
    "in_doubt",
    "remaining",
    "iterations",
    "stop_reason",
    "last_failure",
    "controller",
    "best",
    "failures",
    "stopping",
    "refused_answer",
    "chosen",
    "newest_checkpoint",
    "seed",
)
"""Keys that mean the same in formats 4 and 5."""


def state_of_5(state: State) -> State:
    """The state of format 5 from that of format 4, which held its values one by one.

    Channels of LangGraph's own are kept. A run of EvoX cannot be resumed: its nodes followed one
    another in another order, and its strategies were stored without a record of their own.
    """
    if not state.keys() >= {"run_id", "holdout_key", "controller", "step"}:
        return state  # before the first node, or of another graph
    own = {key: value for key, value in state.items() if ":" in key or key.startswith("__")}
    name, _ = state["controller"]
    if name == "EvoX":
        reason = "format 4 kept the strategies of its method, evox, in another way"
        return {**own, "run": [NOT_RESUMABLE, {"reason": reason}]}
    changed = {key: state[key] for key in KEPT if key in state}
    step = _step(state["step"], state["iteration"])
    if state["step"]["is_credited"]:
        step["credit"] = state["credit"][1]
    if "router" in state:
        changed["router"] = _router(state["router"])
    run = {"id": state["run_id"], "seed": state["run_seed"], "holdout_key": state["holdout_key"]}
    return {
        **own,
        **changed,
        "run": ["Run", run],
        "step": ["Step", step],
        "flight": ["Flight", _flight(state)],
        "archives": ["ArchiveVersion", _archives(state)],
        "account": ["Account", _account(state)],
        "observed": [
            "Observed",
            {"seconds": state.get("seconds", {}), "trace": state.get("trace", {})},
        ],
    }


def _step(step: Mapping[str, Any], iteration: int) -> dict[str, Any]:
    """The record of a step; `failed` had failure and program of each earlier attempt."""
    attempt = {
        "number": step["attempt"],
        "model": (step["models"] or [""])[-1],
        **{
            name: step[name]
            for name in (
                "first_call",
                "parent",
                "inspirations",
                "label",
                "prompt",
                "prompt_data",
                "program",
                "changes",
                "candidate",
                "failure",
                "score",
                "objective",
                "is_refused",
                "refusal",
                "is_out_of_money",
                "is_cut_short",
            )
        },
    }
    models = [*step["models"][:-1], *[""] * len(step["failed"])]
    earlier = [
        {"number": number, "failure": failure, "program": program, "model": model}
        for number, ((failure, program), model) in enumerate(
            zip(step["failed"], models, strict=False), 1
        )
    ]
    allocation = {name: step[name] for name in ("frontier", "action", "intensity")}
    same = ("requests", "refused", "is_guided", "is_launched", "cost", "guide_calls")
    return {
        "ticket": step["number"],
        "allocation": allocation,
        "iteration": iteration,
        "attempt": attempt,
        "earlier": earlier,
        "disabled": step["put_aside"],
        "steered": step.get("steered"),
        **{name: step[name] for name in same},
    }


def _flight(state: State) -> dict[str, Any]:
    tickets = [
        {
            "number": each["number"],
            "attempt": each["attempt"],
            # in flight, a step has the number of the iteration in which it was launched
            "step": each["step"] and _step(each["step"], each["iterations"] + 1),
            "prompt": each["prompt"],
            "expected": each["expected"],
            "seen": [each["launched"], each["open"]],
            "iterations": each["iterations"],
            "archives": {"seq": each["archive_seq"], "num_frontiers": each["num_frontiers"] or 0},
            "best": each["best"],
        }
        for each in state["tickets"]
    ]
    return {
        "tickets": tickets,
        "last_ticket": state["launched"],
        "open_tickets": state["open"],
        "guide_ticket": state["prepared"],
        "num_landed": state["landings"],
        "is_waiting_for_funds": state["awaits_money"],
        "parallel": state["parallel"],
    }


def _archives(state: State) -> dict[str, int]:
    """Which archives are read: those of all frontiers of the method, if it has any."""
    fields = state["controller"][1]
    frontiers = fields.get("frontiers", fields.get("best_scores", ()))
    return {"seq": state["archive_seq"], "num_frontiers": len(frontiers)}


def _account(state: State) -> dict[str, Any]:
    return {
        "granted": state.get("granted_budget"),
        "extended": state["extended_budget"],
        "doubtful": state.get("last_doubt", [0, 0.0]),
        "spent_at_gain": state.get("spent_at_gain", 0.0),
    }


def _router(router: list[Any]) -> list[Any]:
    name, fields = router
    records = [
        {**each, "is_disabled": each["is_put_aside"], "fruitless": 0} for each in fields["records"]
    ]
    for each in records:
        del each["is_put_aside"]
    return [name, {**fields, "records": records}]
