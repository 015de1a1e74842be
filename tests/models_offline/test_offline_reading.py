from offline_programs import AREA, PACKING, generation, guide, scene, shown

from costada.models.offline.reading import GenerationView, GuideView, read_prompt
from costada.prompts.request import FailedAttempt, Siblings
from costada.prompts.tactics import Tactic, outcome_line

TACTIC = Tactic(idea="Anneal it.", description="Slowly.", approach_type="numpy.exp")


def generation_view(**changes) -> GenerationView:
    view = read_prompt(generation(**changes).user)
    assert isinstance(view, GenerationView)
    return view


def test_the_current_program_and_the_others_are_told_apart():
    view = generation_view(others=(shown(AREA), shown(PACKING + "\n\nX = 1\n")))
    assert view.program.strip() == PACKING.strip()
    assert [each.strip() for each in view.others] == [AREA.strip(), PACKING.strip() + "\n\n\nX = 1"]


def test_headings_inside_programs_are_part_of_the_program():
    code = '# Task\nTEXT = """\n# Current program\n```python\nx = 1\n```\n"""\n'
    view = generation_view(current=shown(code), others=(shown(code),))
    assert view.program.strip() == code.strip()
    assert view.takes_blocks


def test_an_error_text_is_no_program():
    failed = shown("x = 1\n")
    failed = type(failed)(failed.code, 0.0, {}, {}, error="bad\nline")
    assert generation_view(current=failed).program == "x = 1\n"
    assert generation_view(others=(failed,)).others == ("x = 1\n",)


def test_tactic_failure_and_wording_are_seen():
    plain = generation_view()
    assert (plain.tactic, plain.has_failure, plain.is_bold) == (None, False, False)
    view = generation_view(
        action="exploration",
        tactic=TACTIC,
        tactic_mode="refinement",
        siblings=Siblings(0.4, (0.3,)),
        failure=FailedAttempt("it broke", "x = 1\n"),
    )
    assert view.tactic is not None
    assert (view.tactic.idea, view.tactic.how) == ("Anneal it.", "Slowly.")
    assert view.tactic.approach == "numpy.exp"
    assert view.has_failure
    assert view.is_bold
    assert view.program.strip() == PACKING.strip()


def test_a_prompt_for_a_whole_program_is_seen():
    text = generation().user
    rewrite = text[: text.index("# Task")] + "# Task\n\nReturn the complete program.\n"
    view = read_prompt(rewrite)
    assert isinstance(view, GenerationView)
    assert not view.takes_blocks


def test_a_guide_prompt_tells_program_mode_and_failed_approaches():
    tried = (outcome_line(TACTIC, 0.0), outcome_line(TACTIC, 0.5).replace("exp", "log"))
    view = read_prompt(guide(mode="refinement", tried=tried).user)
    assert isinstance(view, GuideView)
    assert view.program.strip() == PACKING.strip()
    assert view.keeps_algorithm
    assert view.failures == {"numpy.exp": 1}
    assert not read_prompt(guide().user).keeps_algorithm


def test_only_lines_between_the_markers_may_change():
    program = scene(PACKING).program
    first = PACKING.split("\n").index("# EVOLVE-BLOCK-START")
    assert program.first_line == first + 2
    assert [each.name for each in program.functions()] == [
        "construct_packing",
        "ring",
        "compute_max_radii",
    ]
    assert len(scene(AREA).program.functions()) == 3
