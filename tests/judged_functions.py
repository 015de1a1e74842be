"""Functions of a module that ask models, for problems that are given in Python."""

from openai import OpenAI

from costada import Evaluation


def graded(output: float) -> Evaluation:
    """A score that a judge gives to what a candidate returned."""
    answer = OpenAI(max_retries=0).chat.completions.create(
        model="judge", messages=[{"role": "user", "content": f"Is it large? {output}"}]
    )
    said = answer.choices[0].message.content or ""
    grade = float(said) if said[:1].isdecimal() else len(said) / (1 + len(said))
    score = output * grade
    return Evaluation(score=score, objective=score, is_valid=True)


def graded_program(code: str) -> Evaluation:
    """The same of a program's text, which nothing runs."""
    return graded(float(code.split("return ")[1].split("\n")[0]))
