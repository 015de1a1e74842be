"""Whether the reply of an agent to a customer holds what the handbook says."""

MAX_WORDS = 30


def score_example(reply, example):
    """1 for a short reply with the expected words, half of it for a longer one, else 0."""
    if not isinstance(reply, str):
        raise ValueError(f"reply returned {reply!r}; expected a string")
    if example["expected"].lower() not in reply.lower():
        question = example["inputs"]["question"]
        feedback = f"asked {question!r}: expected {example['expected']!r}, got {reply[:200]!r}"
        return {"combined_score": 0.0, "feedback": feedback}
    return 1.0 if len(reply.split()) <= MAX_WORDS else 0.5
