"""The two orders of a prompt: the paper's, byte for byte, and the one with constant text first."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("costada.plugins.evox.prompts")
from prompt_samples import rendered

SAMPLES = dict(rendered())
PAPER = json.loads(Path(__file__).with_name("paper_prompts.json").read_text())
"""Hashes of the samples, rendered before there was a choice of orders."""


@pytest.mark.parametrize("name", SAMPLES)
def test_the_order_of_the_paper_is_byte_for_byte_what_it_was(name):
    prompt = SAMPLES[name]("paper")
    text = f"{prompt.system}\0{prompt.user}"
    assert hashlib.sha256(text.encode()).hexdigest()[:32] == PAPER[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_both_orders_hold_the_same_lines(name):
    """All but the word that says where the previous attempts stand."""
    first, paper = SAMPLES[name](), SAMPLES[name]("paper")
    assert first.system == paper.system
    assert first.data == paper.data
    lines = Counter(filter(None, first.user.split("\n")))
    moved = paper.user.replace("previous attempts below", "previous attempts above")
    assert lines == Counter(filter(None, moved.split("\n")))
