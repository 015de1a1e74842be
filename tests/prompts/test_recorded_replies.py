"""Every recorded answer of a real model goes through the parser.

The recorded runs also edited programs that were no programs: cut off, or without their entry
point. What fails never enters an archive here, so such an answer is read against the nearest
ancestor that is a program, which is what a model would have been shown.
"""

import gzip
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from costada.prompts.changes import Change, read_change
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm

SHARED = Path(__file__).parents[2].parent / "shared"
RECORDINGS = SHARED / "recordings" / "circle_packing.jsonl.gz"
ENTRY_POINT = "run_packing"
FORM = ProgramForm(entry_point=ENTRY_POINT)
TOKEN_CAPS = {"full": {16384}, "capped": {512, 1024, 2048}}


@dataclass(frozen=True)
class Answer:
    record: dict
    parent_code: str
    has_recorded_parent: bool
    result: Change | Rejection

    @property
    def is_complete(self) -> bool:
        return isinstance(self.result, Change) and is_program(self.result.program.text)

    @property
    def equals_record(self) -> bool:
        code = self.record["code"].strip()
        return isinstance(self.result, Change) and self.result.program.text.strip() == code

    @property
    def leaves_record_unchanged(self) -> bool:
        return self.record["code"].strip() == self.parent_code.strip()


@cache
def is_program(code: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            compile(code, "<recorded>", "exec")
        except (SyntaxError, ValueError):
            return False
    return re.search(rf"^def {ENTRY_POINT}\b", code, re.MULTILINE) is not None


def is_cut_off(record: dict) -> bool:
    """Whether the token cap ended the answer, judged from the record and not by the parser."""
    reply, regime = record["response"], record["regime"]
    if record["tokens"] == "recorded" and record["completion_tokens"] in TOKEN_CAPS[regime]:
        return True
    if ">>>>>>> REPLACE" not in reply[reply.rfind("<<<<<<< SEARCH") :]:
        if "<<<<<<< SEARCH" in reply:
            return True
        if regime == "capped" and "```" not in reply:
            return True
    fences = re.findall(r"^```(\w*)$", reply, re.MULTILINE)
    return bool(fences) and fences[-1] != ""


def parents(records: dict[str, dict], record: dict) -> Iterator[tuple[str, bool]]:
    """The nearest ancestor that is a program, and whether it is the parent or a copy of it.

    Nothing if it lies outside the set.
    """
    is_parent = True
    found = records.get(record["parent_id"])
    while found is not None and (found["kind"] == "migrant" or not is_program(found["code"])):
        is_copy = found["kind"] == "migrant"
        is_parent = is_parent and is_copy
        found = records.get(found["copy_of" if is_copy else "parent_id"])
    if found is not None:
        yield found["code"], is_parent


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    if not RECORDINGS.exists():
        pytest.skip(f"the recorded answers are not there: {RECORDINGS}")
    with gzip.open(RECORDINGS, "rt", encoding="utf-8") as lines:
        records = {record["id"]: record for record in map(json.loads, lines)}
    proposals = [
        record
        for record in records.values()
        if record["kind"] == "proposal" and record.get("response")
    ]
    found = [
        Answer(record, code, is_parent, read_change(record["response"], Program.of(code), FORM))
        for record in proposals
        for code, is_parent in parents(records, record)
    ]
    print(f"\n{len(proposals)} answers, {len(proposals) - len(found)} without their parent")
    return found


def report(title: str, chosen: list[Answer]) -> int:
    complete = sum(answer.is_complete for answer in chosen)
    print(f"{title}: {complete} of {len(chosen)} give a complete program")
    return complete


def test_nearly_every_answer_that_is_not_cut_off_gives_a_complete_program(answers):
    whole = [answer for answer in answers if not is_cut_off(answer.record)]
    report("cut off", [answer for answer in answers if is_cut_off(answer.record)])
    for regime in TOKEN_CAPS:
        report(f"not cut off, {regime}", [a for a in whole if a.record["regime"] == regime])
    assert (report("not cut off", whole), len(whole)) == (721, 738)


def test_all_but_four_of_the_answers_recorded_without_the_entry_point_keep_it(answers):
    lost = [a for a in answers if a.record["failure"] == "entry_point_missing"]
    assert (report("entry point lost in the recording", lost), len(lost)) == (101, 105)


def test_valid_recorded_programs_are_reproduced(answers):
    valid = [answer for answer in answers if answer.record["valid"] and answer.has_recorded_parent]
    stale = [a for a in valid if a.leaves_record_unchanged and not a.equals_record]
    changed = [a for a in valid if not a.leaves_record_unchanged]
    equal = Counter(answer.equals_record for answer in changed)
    print(f"\nvalid and changed: {equal[True]} equal, {equal[False]} different")
    print(f"valid and unchanged, because no edit had matched: {len(stale)}")
    assert (equal[True], equal[False]) == (490, 3)
    assert len(stale) == 18


def test_nearly_every_answer_is_understood_the_same_below_the_path_of_one_of_two_files(answers):
    read = [answer for answer in answers[::4] if isinstance(answer.result, Change)]
    understood = equal = 0
    for answer in read:
        start = Program.of({"src/packing.py": answer.parent_code, "src/other.py": "X = 1\n"})
        form = ProgramForm(paths=tuple(start), entry_point=f"src.packing:{ENTRY_POINT}")
        reply = f"FILE: src/packing.py\n{answer.record['response']}"
        change = read_change(reply, start, form)
        understood += isinstance(change, Change)
        equal += (
            isinstance(change, Change)
            and change.program["src/packing.py"].strip() == answer.result.program.text.strip()
            and change.program["src/other.py"] == "X = 1\n"
        )
    print(f"\n{len(read)} answers: {understood} understood, {equal} with the same program")
    assert understood >= 0.98 * len(read)
    assert equal >= 0.95 * len(read)
