"""Share of rules that instructions state, and how briefly; the text itself is all that counts."""

import re

MAX_WORDS = 80
RULES = {
    "language": r"language",
    "delivery": r"(never|not|no)\b[^.]*\b(promise|date|deliver)",
    "order number": r"(order number|number of (an|the|their) order)",
    "complaints": r"complain[^.]*\b(person|human|colleague|staff)",
    "helmet": r"helmet",
    "honesty": r"(not|n't) know|unsure|uncertain",
}


def score(text):
    """The share of rules stated, times the share of the words allowed if there are more."""
    if not (words := text.split()):
        raise ValueError("the instructions are empty")
    missing = [name for name, sign in RULES.items() if not re.search(sign, text, re.IGNORECASE)]
    share = 1 - len(missing) / len(RULES)
    return {
        "combined_score": share * min(1.0, MAX_WORDS / len(words)),
        "words": len(words),
        "missing": ", ".join(missing) or "none",
    }
