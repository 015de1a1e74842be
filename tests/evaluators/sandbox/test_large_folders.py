"""An evaluator with thousands of files, or of links, sees them all in each layer."""

import pytest
from sandbox_runs import AMPLE

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator

pytestmark = pytest.mark.process

NUM_FILES = 10_000
EVALUATOR = """
import os
def evaluate(path):
    found = [open(f"data/{name}").read() for name in os.listdir("data")]
    return {"known": found.count("x"), "others": len(found) - found.count("x")}
"""


@pytest.fixture(scope="module", params=["files", "links"])
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("problem")
    (place / "data").mkdir()
    (place / "evaluator.py").write_text(EVALUATOR)
    (place / "secret.txt").write_text("SECRET")
    (place / "data" / "0").write_text("x")
    for number in range(1, NUM_FILES):
        path = place / "data" / str(number)
        path.symlink_to("0") if request.param == "links" else path.write_text("x")
    (place / "data" / "away").symlink_to(place.parent)
    (place / "data" / "hidden").symlink_to("../.env")
    (place / ".env").write_text("SECRET")
    return place


def test_all_of_ten_thousand_files_are_seen_and_no_other(folder, confined):
    evaluator = EvaluatorFile(folder, folder / "evaluator.py", files=("data",))
    result = run_evaluator("x = 1", evaluator, AMPLE, confined, preload=())
    assert result.error is None
    assert result.output["metrics"] == {"known": float(NUM_FILES), "others": 0.0}
