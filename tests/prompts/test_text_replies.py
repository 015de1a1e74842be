"""Replies that change one text in any language."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from costada.prompts.changes import Change, read_change
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm, find_language

CPP = """#include <vector>

// EVOLVE-BLOCK-START
double step(int turn) {
    return 0.1;
}
// EVOLVE-BLOCK-END

int main() {
    return step(3) > 0;
}
"""
RUST = 'fn main() {\n    let step = 0.1;\n    println!("{}", step);\n}\n'
PROMPT = "You are a judge.\n\nAnswer with one word.\n"


def read(reply: str, parent: str, language: str) -> Change | Rejection:
    found = find_language(language)
    assert found is not None
    return read_change(reply, Program.of(parent), ProgramForm(language=found))


def text_of(reply: str, parent: str, language: str) -> str:
    result = read(reply, parent, language)
    assert isinstance(result, Change), result
    assert result.program.is_one_text
    return result.program.text


def edit(search: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n"


BLOCK = "double step(int turn) {\n    return 0.1 / (1 + turn);\n}"
CHANGED = CPP.replace("return 0.1;", "return 0.1 / (1 + turn);")
MARKED = f"// EVOLVE-BLOCK-START\n{BLOCK}\n// EVOLVE-BLOCK-END"


@pytest.mark.parametrize(
    "reply",
    [
        f"Shrink it.\n\n{edit('    return 0.1;', '    return 0.1 / (1 + turn);')}",
        f"```cpp\n{edit('    return 0.1;', '    return 0.1 / (1 + turn);')}```",
        f"FILE: main.cpp\n{edit('    return 0.1;', '    return 0.1 / (1 + turn);')}",
        f"Here it is:\n```cpp\n{CHANGED}```\nBuild it:\n```bash\ng++ -O2 main.cpp\n```",
        f"```c++\n{CHANGED}```",
        f"```c\n{CHANGED}```",
        f"```cpp main.cpp\n{CHANGED}```",
        f"```\n{CHANGED}```",
        f"```python\n{CHANGED}```",
        f"```cpp\n{MARKED}\n```",
        f"```cpp\n{BLOCK}\n```",
        f"I changed it:\n{MARKED}\nThat is all.",
        f"Before:\n```cpp\n    return 0.1;\n```\nAfter:\n```cpp\n{CHANGED}```",
        f"```cpp\n{CHANGED}```\nThe changed line:\n```cpp\nreturn 0.1 / (1 + turn);\n```",
        f"```cpp\n{CPP.replace('0.1', '9')}```\nNo:\n```cpp\n{CHANGED}```",
        f"```cpp\n{MARKED}",
    ],
)
def test_a_reply_changes_a_program_in_another_language(reply):
    assert text_of(reply, CPP, "C++") == CHANGED


@pytest.mark.parametrize(
    ("sign", "end"),
    [
        *(("//", ""), ("#", ""), ("--", ""), ("%", ""), (";;", ""), ("!", ""), ("REM", "")),
        *(("/*", " */"), ("<!--", " -->"), ("(*", " *)"), ("{-", " -}"), ('"', "")),
    ],
)
def test_marks_are_found_behind_the_comment_sign_of_any_language(sign, end):
    start, stop = (f"  {sign} EVOLVE-BLOCK-{edge}{end}" for edge in ("START", "END"))
    parent = f"head line\n{start}\nold\n{stop}\ntail line\n"
    reply = f"```\n{start}\nnew\n{stop}\n```"
    assert text_of(reply, parent, "text") == parent.replace("old", "new")
    assert text_of("```\nnew\n```", parent, "text") == parent.replace("old", "new")
    whole = parent.replace("old", "newer")
    assert text_of(f"```\n{whole}```", parent, "text") == whole


def test_a_prompt_is_rewritten_with_the_fences_that_it_holds():
    text = "You are a judge.\n\n```json\n{}\n```\n\nAnswer in that form.\n"
    for ticks, word in (("```", "markdown"), ("````", ""), ("```", "text"), ("```", "")):
        assert text_of(f"{ticks}{word}\n{text}{ticks}", PROMPT, "Markdown") == text


def test_line_ends_stay():
    parent = "one\r\ntwo\r\n"
    assert text_of(edit("two", "2"), parent, "text") == "one\r\n2\r\n"


@pytest.mark.parametrize(
    ("reply", "parent", "language", "reason"),
    [
        ("", RUST, "Rust", "The answer is empty."),
        ("I would use SIMD.", RUST, "Rust", "neither a SEARCH/REPLACE block nor"),
        ("```bash\ncargo build\n```", RUST, "Rust", "neither a SEARCH/REPLACE block nor"),
        ("```diff\n-one\n+two\n```", RUST, "Rust", "neither a SEARCH/REPLACE block nor"),
        ("```rust\nfn main() {", RUST, "Rust", "The answer ends before its program is complete."),
        (edit("fn run() {", "x"), RUST, "Rust", "the program has no line `fn run() {`"),
        (edit("}", "}"), RUST, "Rust", "leave the program as it is"),
        (f"```rust\n{RUST}```", RUST, "Rust", "repeats the current program"),
        (f"```rust\n{RUST * 1200}```", RUST, "Rust", "at most 60000 are allowed"),
        (edit("}", "\N{REPLACEMENT CHARACTER}"), RUST, "Rust", "cannot be encoded"),
        ("<<<<<<< SEARCH\n}\n=======\n", RUST, "Rust", "ends before its first SEARCH/REPLACE"),
    ],
)
def test_a_reply_without_a_changed_text_is_refused_with_a_reason(reply, parent, language, reason):
    result = read(reply, parent, language)
    assert isinstance(result, Rejection), result
    assert reason in result.reason


def test_nothing_is_demanded_of_what_other_languages_define():
    assert text_of("```rust\nfn main() {}\n```", RUST, "Rust") == "fn main() {}\n"


def test_a_kernel_in_triton_is_read_from_a_fence_in_python():
    kernel = "import triton\n\nBLOCK = 128\n"
    reply = f"```bash\npip install triton\n```\n```python\n{kernel}```"
    assert text_of(reply, "import triton\n\nBLOCK = 64\n", "Triton") == kernel


FRAGMENTS = st.sampled_from(
    [
        *("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "```cpp", "```", "```bash", "Prose."),
        *CPP.split("\n"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=30).map("\n".join) | st.text(max_size=60))
def test_any_reply_gives_a_changed_text_or_a_reason(reply):
    result = read(reply, CPP, "C++")
    if isinstance(result, Change):
        assert result.program.text.strip() != CPP.strip()
        assert result.changes
    else:
        assert result.reason


@pytest.mark.parametrize(
    ("language", "parent", "reply"),
    [
        ("C++", CPP, edit("    return 0.1;\n}", "    return 0.1 / (1 + turn);\n}")),
        ("C++", CPP, f"```cpp\n{CHANGED}```"),
        ("Python", "def f():\n    return 1\n", edit("    return 1", "    # two\n    return 2")),
        ("Python", "def f():\n    return 1\n", "```python\ndef f():\n    return 2\n```"),
    ],
)
def test_a_program_keeps_its_line_ends_whichever_a_reply_has(language, parent, reply):
    expected = text_of(reply, parent, language).replace("\n", "\r\n")
    assert "\r" not in expected.replace("\r\n", "")
    for answered in (reply, reply.replace("\n", "\r\n")):
        assert text_of(answered, parent.replace("\n", "\r\n"), language) == expected
