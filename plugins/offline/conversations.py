"""Answers in conversations that are not about programs: of agents, assistants and judges.

The question is the last paragraph; what comes before it is the text that it is about.
"""

import re
from collections.abc import Sequence

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"[^\W_]+")
_SCALE = re.compile(r"from (\d+(?:\.\d+)?) to (\d+(?:\.\d+)?)")
_STEM = 4
"""Letters by which words are compared, so that `weigh` and `weighs` are one."""

_SHORT = 3
"""Words of so few letters say too little, unless they are numbers."""

NOTHING = "I find nothing about that."


def reply(texts: Sequence[str]) -> str:
    """The sentence before the question that shares most words with it, the first of several.

    A question for a number `from A to B` gets one: how many of its words the text before it has.

    Args:
        texts: The texts of a conversation's messages.
    """
    *before, question = [part for part in _PARAGRAPH.split("\n\n".join(texts)) if part.strip()] or [
        ""
    ]
    if scale := _SCALE.search(question):
        low, high = map(float, scale.groups())
        asked = [each for each in _sentences(question) if not _SCALE.search(each)]
        stems = set().union(*map(_stems, asked))
        found = stems & set().union(*map(_stems, before))
        return f"{low + (high - low) * len(found) / max(1, len(stems)):.2f}"
    stems = _stems(question)
    sentences = [each for part in before for each in _sentences(part)]
    best = max(sentences, key=lambda each: len(stems & _stems(each)), default="")
    return best if stems & _stems(best) else NOTHING


def _sentences(text: str) -> list[str]:
    return [each.strip() for each in _SENTENCE.split(text) if each.strip()]


def _stems(text: str) -> set[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return {word[:_STEM] for word in words if len(word) > _SHORT or word.isdecimal()}
