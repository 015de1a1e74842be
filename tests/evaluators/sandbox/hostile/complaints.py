"""Whether the record of a program is what its entry in the collection demands."""

import re

from hostile.corpus import Program
from hostile.watch import GRACE_SECONDS

MAX_GROWTH_MB = 100
MAX_CONTROL_SECONDS = 20.0
MEMORY_SLACK = 1.5
"""Pages that processes share since a fork count in each of them."""

POLICY = re.compile(
    "not allowed|not permitted|denied|forbidden|no processes|not available|sandbox|out of memory"
)
SECRET = "CANARY"


def complaints(program: Program, record: dict, layer: str) -> list[str]:
    """Everything that is wrong with how a program was dealt with."""
    evaluation = record["evaluation"]
    if evaluation is None:
        found = ["the trusted process died or gave no evaluation"]
    else:
        late = evaluation["wall"] - record["wall_seconds"] - GRACE_SECONDS
        found = [f"the evaluation came {late:.1f} s too late"] if late > 0 else []
        found += _control(record) if "control" in record else []
    if program.is_stopped_by(layer):
        found += _traces(record)
        if evaluation is not None:
            found += _evaluation(program, evaluation)
    return found


def _control(record: dict) -> list[str]:
    control = record["control"]
    if control is None:
        return ["the trusted process died or hung at the control afterwards"]
    found = []
    if control["wall"] > MAX_CONTROL_SECONDS:
        found.append(f"the control afterwards took {control['wall']:.1f} s")
    if not control["is_valid"] or abs(control["objective"] - 2.515) > 1e-6:
        found.append(f"the control afterwards: {control['objective']}, {control['error']}")
    if record["growth_mb"] > MAX_GROWTH_MB:
        found.append(f"the trusted process grew by {record['growth_mb']} MB")
    if record["fds"] > 0:
        found.append(f"the trusted process has {record['fds']} open files more")
    return found


def _traces(record: dict) -> list[str]:
    found = [f"left behind: {what}" for what in record["left"]]
    found += [f"changed: {what}" for what in record["changed"]]
    found += [f"heard by {way}" for way in record["heard"]]
    if record["peak_mb"] > record["memory_mb"] * MEMORY_SLACK:
        found.append(f"took {record['peak_mb']} MB")
    texts = str([record["evaluation"], record.get("control")])
    if SECRET in texts:
        place = texts.index(SECRET)
        found.append(f"a secret in the texts: {texts[max(0, place - 60) : place + 60]}")
    return found


def _evaluation(program: Program, evaluation: dict) -> list[str]:
    found = []
    error, expect = evaluation["error"] or "", program.expect
    if len(evaluation["artifacts"].get("log", "")) > 65536:
        found.append("the log is longer than its limit")
    if evaluation["is_valid"]:
        low, high = program.scores
        if expect == "reject":
            found.append(f"credited with {evaluation['objective']}; expected a rejection")
        elif not low <= evaluation["objective"] <= high:
            found.append(f"credited with {evaluation['objective']}; expected {low} to {high}")
        if expect == "flag" and not evaluation["artifacts"].get("tolerance"):
            found.append("credited without a note on the tolerance")
        return found
    if evaluation["score"] != 0 or not error:
        found.append(f"rejected with score {evaluation['score']} and error {error!r}")
    if expect == "accept":
        found.append(f"rejected: {error}")
    if expect == "accept_or_clear_reject" and not POLICY.search(error):
        found.append(f"rejected without naming the policy: {error}")
    is_said = any(text.lower() in error.lower() for text in program.says)
    if expect == "reject" and program.says and not is_said:
        found.append(f"says {error[:300]!r}; expected {' or '.join(program.says)}")
    return found
