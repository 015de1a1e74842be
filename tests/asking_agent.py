"""A stand-in for a coding agent: it asks a model and writes what it answers into a file.

    python asking_agent.py PROMPT MODEL TURNS FILE

It asks as often as there are turns, each time with the prompt and what was answered before, and
takes the program of the last answer that holds one. An error of the endpoint ends it with status 3.
"""

import json
import os
import re
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def ask(model: str, messages: list[dict[str, str]]) -> str:
    """The answer of a model."""
    request = Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps({"model": model, "messages": messages}).encode(),
        {
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except HTTPError as error:
        print(error.code, error.read().decode(), flush=True)
        sys.exit(3)


def main() -> None:
    """Ask, and write what was found."""
    prompt, model, turns, file = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    messages: list[dict[str, str]] = []
    for turn in range(1, turns + 1):
        messages.append({"role": "user", "content": f"Turn {turn}.\n{prompt.read_text()}"})
        answer = ask(model, messages)
        messages.append({"role": "assistant", "content": answer})
        if found := FENCE.search(answer):
            Path(file).write_text(found[1])
    print("asked", turns, "times")


if __name__ == "__main__":
    main()
