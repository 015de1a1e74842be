from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    question: str
    notes: list[str]
    found: list[str]
    reply: str


# EVOLVE-BLOCK-START
NOTES = 2
LETTERS = 9
INSTRUCTIONS = "Reply with the note that answers the question, and nothing else."


def stems(text):
    words = (word.strip(".,?").lower() for word in text.split())
    return {word[:LETTERS] for word in words}


def look_up(state):
    asked = stems(state["question"])
    ranked = sorted(state["notes"], key=lambda note: -len(asked & stems(note)))
    return {"found": ranked[:NOTES]}


def answer(state):
    prompt = "\n".join([INSTRUCTIONS, *state["found"], "", state["question"]])
    return {"reply": ChatOpenAI(model="agent", max_tokens=200).invoke(prompt).text}


builder = StateGraph(State)
builder.add_node(look_up)
builder.add_node(answer)
builder.add_edge(START, "look_up")
builder.add_edge("look_up", "answer")
builder.add_edge("answer", END)
# EVOLVE-BLOCK-END


def reply(question, notes):
    return builder.compile().invoke({"question": question, "notes": notes})["reply"]
