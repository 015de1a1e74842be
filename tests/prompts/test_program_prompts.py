"""What prompts say of programs in other languages and of several files."""

from dataclasses import replace

import pytest

from costada.prompts.render import (
    OUTLINE_LINES,
    generation_prompt,
    guide_prompt,
    outline,
    program_block,
)
from costada.prompts.requests import FailedAttempt, GenerationRequest, GuideRequest, ProgramView
from costada.prompts.tools import FoundProgram, program_text, tools_for
from costada.values.candidate import Program
from costada.values.program_form import WHOLE_CHARACTERS, ProgramForm, find_language

FILES = Program.of(
    {"a/solve.py": "def solve():\n    return 1\n", "hints.md": "# Hints\n", "z.py": "Z = 1\n"}
)
FORM = ProgramForm(paths=tuple(FILES), patterns=("a/*.py", "*.md"), entry_point="a.solve:solve")


def form_of(language: str, **commands: str) -> ProgramForm:
    found = find_language(language)
    assert found is not None
    return ProgramForm(language=found, **commands)


CPP = form_of("C++", build="g++ -O3 {program} -o {binary}", run="{binary}")
PROMPT = form_of("Markdown")
TEXT = ProgramView("int main() {}\n", 0.5, {}, {})


def generated(form: ProgramForm, program: ProgramView = TEXT, **changes: object) -> str:
    request = GenerationRequest("Try.", program, "balanced", (), 9.0, form.entry_point, form=form)
    return generation_prompt(replace(request, **changes)).user


def guided(form: ProgramForm, mode: str = "breakthrough") -> str:
    return guide_prompt(GuideRequest("Try.", "def e(p): ...", TEXT, mode, (), 9.0, 3, form)).user


SEVERAL = ProgramView(FILES, 0.5, {}, {})


@pytest.mark.parametrize(
    ("text", "said", "unsaid"),
    [
        (
            generated(CPP),
            (
                "written in C++",
                "`g++ -O3 {program} -o {binary}` and runs it with `{binary}`",
                "```cpp\nint main() {}\n```",
                "in a single cpp fence",
                "after 9 seconds",
            ),
            ("python", "docstring"),
        ),
        (
            generated(form_of("JavaScript", run="node {program}")),
            ("runs it with `node {program}`", "```javascript\n"),
            ("builds",),
        ),
        (
            generated(PROMPT),
            ("one text (Markdown), which the evaluator reads", "more backticks than any inside"),
            ("seconds", "function"),
        ),
        (
            generated(FORM, SEVERAL),
            (
                "FILE: a/solve.py\n<<<<<<< SEARCH\n",
                "`a.solve:solve` stays defined",
                "whose paths match `a/*.py` or `*.md` may be changed, added or deleted",
                "FILE: a/solve.py\n```python\ndef solve():",
                "FILE: hints.md\n```markdown\n# Hints\n```",
            ),
            ("==>", "single"),
        ),
        (
            generated(replace(FORM, patterns=()), SEVERAL),
            ("No other files may be added, and none deleted.",),
            ("DELETE", "new file"),
        ),
        (
            generated(replace(FORM, patterns=("**",)), SEVERAL),
            ("Any file may be changed or deleted, and others added.", "DELETE: path"),
            ("`**`",),
        ),
        (guided(CPP), ("comes with C++", "built with `g++ -O3"), ("scipy", "numpy")),
        (guided(CPP, "refinement"), ("memory access",), ("scipy",)),
        (guided(PROMPT), ("which part of the text", "examples instead of rules"), ("seconds",)),
        (guided(FORM), ("scipy.optimize.minimize",), ()),
    ],
)
def test_a_prompt_speaks_of_language_commands_and_files(text, said, unsaid):
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


def test_the_prompt_for_labels_speaks_of_the_language():
    prompts = pytest.importorskip("costada.plugins.evox.prompts")
    text = prompts.label_prompt("T", "e", ("numpy",), CPP).user
    assert "written in C++" in text
    assert "numpy" not in text


def test_other_programs_and_failures_show_the_files_that_differ():
    other = Program.of({**FILES, "z.py": "Z = 2\n"})
    fewer = Program.of({"a/solve.py": "def solve():\n    return 3\n", "hints.md": "# Hints\n"})
    text = generated(
        FORM,
        SEVERAL,
        others=(ProgramView(other, 0.4, {}, {}), ProgramView(fewer, 0.3, {}, {})),
        failure=FailedAttempt("it broke", other),
    )
    first, second = text.split("## Program 2")
    assert first.split("## Program 1")[1].strip() == (
        "Score: 0.4000\n\nFILE: z.py\n```python\nZ = 2\n```\n\n"
        "2 files are as in the current program."
    )
    assert "It does not have `z.py`.\n\n1 file is as in the current program." in second
    failed = text.split("It came from this program:")[1]
    assert failed.startswith("\n\nFILE: z.py\n```python\nZ = 2\n```\n\nFind the cause")


def test_files_that_do_not_fit_are_outlined():
    large = "".join(f"def step_{n}(x):\n    return x + {n}\n" for n in range(4000))
    program = Program.of({**FILES, "large.py": large})
    text = program_block(program, FORM)
    assert "FILE: z.py\n```python\nZ = 1\n```" in text
    assert f"Files that do not fit into {WHOLE_CHARACTERS} characters" in text
    assert f"- `large.py`, {len(large)} characters\n```text\n1: def step_0(x):\n" in text
    assert len(text) < 3000


def test_the_file_of_the_entry_point_and_marked_files_come_before_shorter_ones():
    files = {
        "a/solve.py": "s" * 50,
        "b.py": "# EVOLVE-BLOCK-START" + "b" * 20,
        "c.py": "c" * 30,
        "d.py": "d" * 10,
    }
    text = program_block(Program.of(files), FORM, limit=105)
    shown = [path for path in files if f"FILE: {path}\n" in text]
    assert shown == ["a/solve.py", "b.py", "d.py"]


def test_an_outline_names_definitions_and_ends():
    text = "#include <x>\n\nstruct A {\n  int x;\n};\nint main() {\n}\n"
    assert outline(text) == "1: #include <x>\n3: struct A {\n6: int main() {"
    many = outline("def f(): ...\n" * 100).split("\n")
    assert many[OUTLINE_LINES:] == ["[60 more]"]


def test_tools_ask_for_what_the_form_takes():
    words = {
        form: str(tools_for(form)[0]["function"]["parameters"]["properties"]["changes"])
        for form in (CPP, FORM)
    }
    assert "in a cpp fence" in words[CPP]
    assert "below a line `FILE: path`" in words[FORM]
    assert "FILE: z.py\n```python\nZ = 1" in program_text(FoundProgram("4.1", "", SEVERAL), FORM)


def test_the_data_beside_a_prompt_hold_the_files():
    request = GenerationRequest("Try.", SEVERAL, "balanced", (TEXT,), 9.0, None, form=FORM)
    data = generation_prompt(request).data
    assert data is not None
    assert data.program == dict(FILES)
    assert data.others == ("int main() {}\n",)
    assert generation_prompt(replace(request, current=TEXT, form=CPP)).data.language == "cpp"  # type: ignore[union-attr]
