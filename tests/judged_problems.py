"""Problem folders whose evaluators ask models, and a provider that answers them and generation."""

import hashlib
import time
from collections import Counter
from decimal import Decimal
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any

from billing_server import Reply
from fakes import SEED_PROGRAM, hashed_answer

PRICES = {
    "writer": (Decimal("0.6"), Decimal("1.92")),
    "judge-large": (Decimal("3"), Decimal("15")),
    "judge-small": (Decimal("0.1"), Decimal("0.4")),
}
"""Dollars per million tokens by the name of a model at its provider."""

ASKING = """
import json
import os
from urllib.request import Request, urlopen


def ask(model, text):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    request = Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urlopen(request) as response:
        return float(json.load(response)["choices"][0]["message"]["content"])
"""
"""Asks a model for a number, without an SDK: to import one takes most of a process's start."""

JUDGING = """
from openai import OpenAI

CLIENT = OpenAI(max_retries=0)


def score(output):
    texts = []
    for question in ("Is it large?", "Is it round?"):
        answer = CLIENT.chat.completions.create(
            model="judge", messages=[{"role": "user", "content": f"{question} {output}"}]
        )
        texts.append(answer.choices[0].message.content)
    return {"combined_score": output * float(texts[0]) * float(texts[1])}
"""
"""An evaluator whose client is made when it is imported."""


def judged_folder(
    folder: Path, url: str, evaluator: str = JUDGING, settings: str = "", model: str = "judge-large"
) -> Path:
    """Write a problem whose evaluator asks the model that it calls judge."""
    folder.mkdir()
    price_in, price_out = PRICES[model]
    (folder / "problem.md").write_text("Return a large number, at most 1.\n")
    (folder / "initial_program.py").write_text(SEED_PROGRAM)
    (folder / "evaluator.py").write_text(evaluator)
    (folder / "problem.toml").write_text(
        f"""entry_point = "value"
{settings}
[models.judge]
model = "openai:{model}"
base_url = "{url}"
price = "{price_in},{price_out}"
max_tokens = 1000
"""
    )
    return folder


def cost_of(model: str, taken: int, given: int) -> Decimal:
    """Dollars of an answer."""
    price_in, price_out = PRICES[model]
    return (taken * price_in + given * price_out) / 1_000_000


class Providers:
    """Answers judges and writers by the request alone, and keeps the bill.

    Requests after `last_answered` wait until that is raised, so that no run ends before its kill.
    """

    def __init__(self, latency: float = 0.0) -> None:
        self.billed: Counter[tuple[str, str]] = Counter()
        self.bill: dict[str, Decimal] = {}
        self.last_answered = inf
        self._latency, self._lock = latency, Lock()

    def answer(self, body: Any) -> Reply:
        model, prompt = str(body["model"]), str(body["messages"][-1]["content"])
        cap = body.get("max_completion_tokens") or body.get("max_tokens") or 10_000
        draw = hashlib.sha256(prompt.encode()).digest()
        taken, given = 100 + len(prompt), min(cap, 50 + draw[0])
        with self._lock:
            self.billed[model, prompt] += 1
            self.bill[model] = self.bill.get(model, Decimal(0)) + cost_of(model, taken, given)
            number = self.billed.total()
        time.sleep(self._latency)
        while number > self.last_answered:
            time.sleep(0.002)
        text = hashed_answer(prompt) if model == "writer" else f"0.{90 + draw[1] % 10}"
        return Reply(text, input_tokens=taken, output_tokens=given)

    @property
    def total(self) -> Decimal:
        """Dollars of all answers."""
        return sum(self.bill.values(), Decimal(0))
