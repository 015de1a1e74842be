"""Where a problem folder may keep its task."""

import pytest

from costada.evaluators.folders import read_task


def test_the_task_is_the_text_of_problem_md(tmp_path):
    (tmp_path / "problem.md").write_text("Find it.")
    (tmp_path / "config.yaml").write_text("prompt: {system_message: Find another thing.}")
    assert read_task(tmp_path) == "Find it."


def test_the_task_may_stand_in_the_config_of_openevolve(tmp_path):
    config = "llm: {}\nprompt:\n  system_message: |\n    Find it.\n"
    (tmp_path / "config.yaml").write_text(config)
    assert read_task(tmp_path) == "Find it.\n"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("prompt: {}", "config.yaml has no text at prompt.system_message"),
        ("prompt: [", "config.yaml is not valid YAML"),
    ],
)
def test_a_config_without_the_task_is_refused(tmp_path, config, message):
    (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(ValueError, match=message):
        read_task(tmp_path)


def test_a_folder_without_either_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"problem\.md is missing"):
        read_task(tmp_path)
