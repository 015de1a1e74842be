"""How well an assistant that follows the instructions answers customers, as a judge sees it."""

from openai import OpenAI

MAX_WORDS = 60
EXPECTED = {
    "When is my order delivered?": "ask for the order number, and promise no date of delivery",
    "The brakes that you repaired squeal, I want to complain.": "hand the complaint to a colleague",
    "Which bicycle is best for a child of six?": "recommend a helmet with the bicycle",
    "Was kostet ein Rad, in my language please?": "use the language of the customer",
    "Do you know the result of the race?": "say that it does not know",
}
CLIENT = OpenAI()


def ask(model, text, instructions=""):
    """What a model says; the run pays for it."""
    messages = [{"role": "system", "content": instructions}] if instructions else []
    messages.append({"role": "user", "content": text})
    answer = CLIENT.chat.completions.create(model=model, messages=messages, max_tokens=500)
    return answer.choices[0].message.content or ""


def score(instructions):
    """The mean mark of the replies, times the share of the words allowed if there are more."""
    if not (words := instructions.split()):
        raise ValueError("the instructions are empty")
    marks, replies = {}, {}
    for message, duty in EXPECTED.items():
        replies[message] = ask("assistant", message, instructions)
        said = ask(
            "judge",
            f"A customer wrote: {message}\nAn assistant replied: {replies[message]}\n\n"
            f"Does it {duty}? Reply with a number from 0 to 1, and nothing else.",
        )
        try:
            marks[message] = min(1.0, max(0.0, float(said)))
        except ValueError:
            raise RuntimeError(f"the judge said {said!r}; expected a number") from None
    worst = min(marks, key=marks.__getitem__)
    return {
        "combined_score": sum(marks.values()) / len(marks) * min(1.0, MAX_WORDS / len(words)),
        "words": len(words),
        "feedback": f"worst reply: to {worst!r} it said {replies[worst]!r}, expected to"
        f" {EXPECTED[worst]}",
    }
