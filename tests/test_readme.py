"""What the README shows runs: its `python` blocks, and its `bash` blocks line by line."""

import re
from pathlib import Path

import pytest
from doc_blocks import output_of_line
from warm import output_of_script

README = (Path(__file__).parents[1] / "README.md").read_text()
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]


def test_the_readme_shows_something_to_run():
    assert len(PYTHON_BLOCKS) == 3
    assert len(COMMANDS) == 17


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=lambda block: block.splitlines()[-1][:40])
def test_a_python_block_of_the_readme_runs_and_prints(block, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(block)
    assert output_of_script(script, tmp_path).strip()


def test_the_commands_of_the_readme_run_in_their_order(tmp_path):
    said = ""
    for command in COMMANDS:
        said += output_of_line(command, tmp_path)
    assert (tmp_path / "demo-run" / "report.png").stat().st_size > 10_000
    assert re.findall(r"(\d+) runs, .* bill from here on: \$(\d+) ", said) == [
        ("72", "72"),
        ("72", "360"),
        ("96", "96"),
        ("72", "36"),
    ]
    assert (tmp_path / "sweep-demo" / "comparison.html").stat().st_size > 10_000
    assert (tmp_path / "spent.svg").read_text().startswith("<?xml")
    assert (tmp_path / "demo-run" / "report.html").stat().st_size > 10_000
