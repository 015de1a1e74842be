import json
import shutil
import subprocess
import sys

import pytest

from costada.evaluators.sandbox.layer_choice import layer_fault
from costada.evaluators.sandbox.layers import BY_STRENGTH

pytestmark = pytest.mark.process


def test_doctor_says_which_layers_work_and_which_keys_are_set_by_name(invoke, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-4711")
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    done = invoke("doctor", "--json")
    found = json.loads(done.output)
    for layer in BY_STRENGTH:
        fault = layer_fault(layer)
        assert fault == found["sandbox"][layer.value] if fault else "works" in done.output
    assert found["keys"]["OPENAI_API_KEY"] == "set"
    assert not found["keys"]["GROQ_API_KEY"]
    assert "4711" not in done.output
    assert found["programs"]["git"] == (shutil.which("git") or "")
    assert found["CostAda"]["Python"].endswith(f"({sys.executable})")
    assert done.exit_code == 0


def test_what_is_not_there_stands_in_one_line_of_its_section(invoke, monkeypatch):
    monkeypatch.setenv("PATH", "")
    lines = invoke("doctor").output.splitlines()
    programs = lines[lines.index("programs") + 1]
    assert programs.startswith("  not found: git, docker")


def test_an_extra_of_an_older_version_counts_as_absent(tmp_path):
    """Its distribution is first on the path, in a version that the extra does not allow."""
    facts = tmp_path / "uv-0.0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: uv\nVersion: 0.0.1\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from costada.cli.doctor_command import _extras; print(_extras()['prepare'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
