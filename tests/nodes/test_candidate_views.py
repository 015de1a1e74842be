from costada.controller.archive import Candidate
from costada.nodes.candidates import shown


def test_wall_clock_times_stay_out_of_prompts_so_that_prompts_repeat():
    candidate = Candidate(
        id="1.1",
        code="x = 1",
        score=0.5,
        parent_id=None,
        iteration=1,
        generation=1,
        metrics={"sum_radii": 1.3, "eval_time": 0.2345},
        artifacts={"log": "fine"},
        changes="",
    )
    assert shown(candidate).metrics == {"sum_radii": 1.3}
    assert shown(candidate).artifacts == {"log": "fine"}
