"""An evaluation in words for a person and in JSON for a program."""

import json
from dataclasses import asdict

from costada.evaluators.sandbox.choice import described_layer
from costada.evaluators.sandbox.layers import Layer
from costada.values.evaluation import MARKS, Evaluation

LOG = "log"
NUM_LINES = 20
NUM_CHARACTERS = 2000


def verdict_text(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """Return a verdict in lines, with the beginning of each text that came with it."""
    objective = "none" if evaluation.objective is None else f"{evaluation.objective:.10g}"
    lines = [
        f"objective  {objective}",
        f"score      {evaluation.score:.10g}",
        f"valid      {'yes' if evaluation.is_valid else 'no'}",
        f"seconds    {evaluation.seconds:.3f}",
        f"sandbox    {described_layer(sandbox) if sandbox else 'up to the problem'}",
        *(f"  {name} = {value:.10g}" for name, value in evaluation.metrics.items()),
    ]
    notes = {k: text for k, text in evaluation.artifacts.items() if k not in (*MARKS, LOG)}
    texts = {"error": evaluation.error, **notes, LOG: evaluation.artifacts.get(LOG)}
    lines += [_titled(name, text) for name, text in texts.items() if text]
    return "\n".join(lines)


def verdict_json(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """Return a verdict as one JSON object with everything that came with it."""
    return json.dumps({**asdict(evaluation), "sandbox": sandbox}, indent=2, default=dict)


def _titled(name: str, text: str) -> str:
    """Return a text behind its name; one of several lines stands below it."""
    shown = _excerpt(text)
    return f"{name:<10} {shown}" if "\n" not in shown else f"{name}:\n{shown}"


def _excerpt(text: str) -> str:
    """Return the beginning of a program's text, harmless to a terminal."""
    safe = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
    lines = safe[:NUM_CHARACTERS].splitlines()[:NUM_LINES]
    shown = "\n".join(line.rstrip() for line in lines)
    is_cut = len(safe) > NUM_CHARACTERS or len(safe.splitlines()) > NUM_LINES
    return f"{shown}\n[the beginning of {len(text)} characters]" if is_cut else shown
