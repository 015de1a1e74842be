"""Every example runs as its reader runs it, and says what it should."""

import json
import re

import pytest
from doc_blocks import ROOT, is_as_printed
from warm import output_of_script

pytestmark = pytest.mark.process

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOK = json.loads((EXAMPLES / "discovery.ipynb").read_text())
SAID = {
    "agent_with_a_purse.py": [
        r"^This is what I found\.",
        r"^the search spent \$0\.0\d+, the agent \$0\.016",
        r"^together \$0\.\d+ of \$0\.5; ",
    ],
    "own_problem.py": [
        r"^before: 0\.8699",
        r"^after \$0\.05\d* and \d+ steps: ",
        r"^def place\(n\):",
    ],
    "quick_start.py": [r"^step 1 on frontier 1 cost \$0\.0", r"stopped by: budget"],
    "research_pipeline.py": [r"^plan is done", r"^  step 2: best 1\.", r"Sum of radii 1\."],
    "resume_after_a_crash.py": [
        r"^SIGKILL after \d steps",
        r"^same best program: True",
        r"^same \d+ calls, each once: True",
    ],
}


def cells(kind: str) -> list[dict]:
    return [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == kind]


def test_every_example_is_expected_and_listed():
    listed = re.findall(r"\]\((\S+)\)", (EXAMPLES / "README.md").read_text())
    listed = [name for name in listed if not name.startswith("problems")]
    assert [path.name for path in SCRIPTS] == sorted(SAID)
    assert sorted(listed) == sorted([*SAID, "discovery.ipynb"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs_without_a_key_and_says_what_it_did(script, tmp_path):
    said = output_of_script(script, tmp_path)
    for pattern in SAID[script.name]:
        assert re.search(pattern, said, re.MULTILINE), said
    assert list(tmp_path.iterdir()) == []


def test_the_notebook_runs_and_prints_what_is_stored_in_it(tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join("".join(cell["source"]) for cell in cells("code")))
    said = output_of_script(script, tmp_path)
    outputs = [output for cell in cells("code") for output in cell["outputs"]]
    stored = "".join("".join(output.get("text", [])) for output in outputs)
    assert said == stored or not is_as_printed()


def test_the_notebook_holds_one_picture_and_no_error():
    kinds = [output["output_type"] for cell in cells("code") for output in cell["outputs"]]
    assert kinds == ["stream", "stream", "stream", "display_data", "stream"]
    assert [cell["execution_count"] for cell in cells("code")] == [1, 2, 3, 4, 5]
