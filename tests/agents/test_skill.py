"""The skill for coding agents: its format, and its files and commands as an agent follows them."""

import pytest
import yaml
from doc_blocks import ROOT, blocks_of, said_by

from costada.runs.loaded_run import load_run

pytestmark = pytest.mark.process

SKILL = ROOT / "agents" / "skills" / "costada" / "SKILL.md"


def test_an_agent_that_follows_the_skill_finds_a_better_schedule(tmp_path):
    assert list(said_by(blocks_of(SKILL), tmp_path)) == []
    run = load_run(tmp_path / "schedule-offline")
    start, *_ = run.candidates
    assert (run.state, run.spent >= 0.1) == ("finished", True)
    assert run.best_score > start["score"] > 0.5


def test_the_skill_has_the_format_of_agent_skills_and_stays_short():
    _, header, _ = SKILL.read_text().split("---\n", 2)
    facts = yaml.safe_load(header)
    assert facts["name"] == SKILL.parent.name
    assert 0 < len(facts["description"]) <= 1024
    assert len(SKILL.read_text().splitlines()) < 120


@pytest.mark.parametrize("place", [".agents", ".claude"])
def test_agents_that_work_in_the_repository_find_the_skill(place):
    assert (ROOT / place / "skills" / "costada" / "SKILL.md").samefile(SKILL)
