from offline_programs import AREA, PACKING, generation, guide, scene, shown

from costada.prompts.requests import FailedAttempt
from costada.prompts.tactics import Tactic, TriedTactic
from costada.values.prompt_data import PromptData, TrialData, prompt_data, trial_data

TACTIC = Tactic(idea="Anneal it.", description="Slowly.", approach_type="numpy.exp")


def test_a_generation_prompt_carries_what_it_was_made_of():
    failure = FailedAttempt("it broke", "x = 1\n")
    prompt = generation(
        action="exploration",
        others=(shown(AREA),),
        tactic=TACTIC,
        tactic_mode="refinement",
        failure=failure,
    )
    assert prompt.data == PromptData(
        kind="generation",
        program=PACKING,
        score=0.4,
        others=(AREA,),
        action="exploration",
        mode="refinement",
        approach="numpy.exp",
        idea="Anneal it. Slowly.",
        has_failure=True,
    )
    assert generation(earlier_failures=(failure,)).data.has_failure


def test_a_label_counts_as_the_action_that_it_asks_for():
    assert generation(label="Polish.", label_name="refine").data.action == "exploitation"
    assert generation(label="", label_name="refine").data.action == "balanced"


def test_a_guide_prompt_carries_program_mode_and_failed_approaches():
    other = TACTIC.model_copy(update={"approach_type": "numpy.log"})
    tried = (TriedTactic(TACTIC, 0.0), TriedTactic(other, 0.5))
    data = guide(mode="refinement", tried=tried).data
    assert data == PromptData("guide", PACKING, mode="refinement", failed=("numpy.exp",))


def test_data_are_read_back_from_a_message():
    data = generation().data
    assert prompt_data(data.kwargs) == data
    assert trial_data(data.kwargs) is None
    trial = TrialData("3.1.2", 0.5)
    assert trial_data(trial.kwargs) == trial
    assert prompt_data(trial.kwargs) is None
    assert prompt_data({}) is None


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
