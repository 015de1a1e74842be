"""The offline model changes programs in any language, and of several files."""

from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from offline_programs import AREA, generation, guide

from costada.plugins.offline.answers import FAILURE_RATE, USUAL_EDITS, answer
from costada.plugins.offline.edits import EditContext
from costada.plugins.offline.ideas import IDEAS
from costada.prompts.changes import Change, read_change
from costada.prompts.requests import ProgramView
from costada.prompts.tactics import Tactic, TriedTactic, parse_tactics
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm, find_language

CPP = """#include <cstdio>

// EVOLVE-BLOCK-START
double guess(int k) {
    double step = 0.5;
    double start = 1.25f;
    return start + step * k;
}
// EVOLVE-BLOCK-END

int main() {
    std::printf("%.6f", guess(3));
    return 0;
}
"""
PROMPT = "You are a judge.\n\nRead the text.\nAnswer in 12 words.\nBe kind.\n"
CONFIG = '{\n  "rate": 0.01,\n  "layers": 4\n}\n'
TEXTS = {"C++": CPP, "Markdown": PROMPT, "JSON": CONFIG}
FILES = Program.of({"src/area.py": AREA, "src/guess.cpp": CPP, "hints.md": PROMPT})
FILES_FORM = ProgramForm(paths=tuple(FILES))


def form_of(language: str) -> ProgramForm:
    found = find_language(language)
    assert found is not None
    return ProgramForm(language=found)


def shown(code: str | Program) -> ProgramView:
    return ProgramView(code, 0.4, {}, {})


def reply(code: str | Program, form: ProgramForm, seed: int, **changes: object) -> str:
    return answer(generation(current=shown(code), form=form, **changes).data, Random(seed))


@pytest.mark.parametrize("language", TEXTS)
def test_most_answers_change_a_text_and_about_one_in_ten_fails(language):
    form, parent = form_of(language), Program.of(TEXTS[language])
    read = [read_change(reply(parent.text, form, seed), parent, form) for seed in range(200)]
    changed = [each.program.text for each in read if isinstance(each, Change)]
    assert 0.4 * FAILURE_RATE < 1 - len(changed) / len(read) < 1.6 * FAILURE_RATE
    assert len(set(changed)) > 10


def test_only_the_part_between_the_marks_changes():
    form, parent = form_of("C++"), Program.of(CPP)
    outside = CPP.split("double guess")[0], CPP.split("// EVOLVE-BLOCK-END")[1]
    for seed in range(60):
        read = read_change(reply(CPP, form, seed), parent, form)
        if isinstance(read, Change):
            assert read.program.text.startswith(outside[0])
            assert read.program.text.endswith(outside[1])


def test_every_file_of_several_is_changed_in_turn_and_no_other_is_touched():
    replies = [reply(FILES, FILES_FORM, seed) for seed in range(80)]
    read = [read_change(each, FILES, FILES_FORM) for each in replies]
    changed = [each.program for each in read if isinstance(each, Change)]
    differing = [{path for path in FILES if each[path] != FILES[path]} for each in changed]
    assert all(len(each) == 1 for each in differing)
    assert set.union(*differing) == set(FILES)
    assert len(changed) > 60


def test_lines_of_another_program_are_taken():
    other = CPP.replace("0.5", "0.75")
    texts = [reply(CPP, form_of("C++"), seed, others=(shown(other),)) for seed in range(40)]
    taken = [each for each in texts if "from another program" in each]
    assert taken
    assert all("0.75" in each for each in taken)


GENERAL = ("numbers.tune", "lines.combine", "lines.reorder")
"""Approaches of the ideas that fit a program in any language."""


@pytest.mark.parametrize("approach", GENERAL)
def test_a_tactic_is_carried_out_where_the_text_offers_a_place(approach):
    (idea,) = (each for each in IDEAS if each.approach == approach)
    wanted = idea.edit(EditContext(CPP, (CPP.replace("0.5", "0.7"),)), Random(0))
    assert wanted is not None
    tactic = Tactic(idea=idea.idea, description=idea.steps, approach_type=approach)
    changes = {"tactic": tactic, "tactic_mode": "refinement"}
    others = (shown(CPP.replace("0.5", "0.7")),)
    verb = wanted.summary.split()[0]
    for seed in range(5):
        assert f" {verb} " in reply(CPP, form_of("C++"), seed, others=others, **changes)


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
def test_a_guide_proposes_ideas_that_fit_any_language_and_those_that_failed_last(mode):
    tactic = Tactic(idea="Combine.", description="Combine.", approach_type="lines.combine")
    tried = (TriedTactic(tactic, 0.0),) * 2
    for seed in range(5):
        data = guide(CPP, mode, tried).data
        assert data is not None
        found = parse_tactics(answer(replace(data, language="cpp"), Random(seed)), 3)
        assert {each.approach_type for each in found} == set(GENERAL)
        assert found[-1].approach_type == "lines.combine"


def test_a_guide_sees_the_longest_file_of_several():
    data = guide().data
    assert data is not None
    found = parse_tactics(answer(replace(data, program=dict(FILES)), Random(1)), 3)
    assert len(found) == 3
    assert not {each.approach_type for each in found} & set(GENERAL)


@pytest.mark.parametrize("text", ["", "word", "x\ny\n", "# EVOLVE-BLOCK-END\n1\n"])
def test_a_text_without_a_place_for_an_edit_is_answered_in_prose(text):
    assert "I find nothing to change" in reply(text, form_of("text"), 0)


ODD = st.text(alphabet="0123456789.;a \n{}#/-\t'\"", max_size=80)


@settings(max_examples=200)
@given(ODD, ODD, st.integers(0, 9))
def test_it_answers_for_any_text(text, other, seed):
    context = EditContext(text, (other,))
    for edit in (*(kind for kind, _ in USUAL_EDITS), *(idea.edit for idea in IDEAS)):
        found = edit(context, Random(seed))
        assert found is None or found.summary
    assert reply(text, form_of("text"), seed).startswith("Offline model: ")
