"""Which files of an evaluator a build of its candidate reads: what CMake or a pattern names."""

from pathlib import Path
from sysconfig import get_path

import pytest
from needed_programs import require

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

LIMITS = Limits(wall_seconds=120, processes=64, memory_mb=4096)
EVALUATOR = """
import os, shutil, subprocess
HERE = os.path.dirname(os.path.abspath(__file__))
LISTED = ["answers.txt", "src", "lib", "CMakeLists.txt", "Makefile", "main.mk"]
def run(*words, **named):
    named["shell"] = len(words) == 1
    done = subprocess.run(words[0] if len(words) == 1 else words, text=True,
        capture_output=True, **named)
    if done.returncode: raise RuntimeError(done.stdout + done.stderr)
    return done.stdout
def evaluate(path):
    shutil.copy(path, PLACE)
    number = float(STEPS)
    return {"number": number}
"""
FILES = {
    "answers.txt": "42",
    "src/main.c": '#include <stdio.h>\n#include "part.h"\nint number(void);\n'
    "int main(void) { printf(FORM, number()); return 0; }\n",
    "src/part.h": '#define FORM "%d\\n"\n',
    "lib/deep/more.c": "int more(void) { return 40; }\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(x C)\nset(SRC src)\n"
    "add_subdirectory(lib)\nadd_executable(prog ${SRC}/main.c ${CMAKE_SOURCE_DIR}/number.c)\n"
    "target_link_libraries(prog more)\n",
    "lib/CMakeLists.txt": "file(GLOB_RECURSE MORE *.c)\nadd_library(more ${MORE})\n",
    "Makefile": "SRC = src\nOBJ = $(patsubst %.c,%.o,$(wildcard $(SRC)/*.c)) number.o\n"
    "prog: $(OBJ)\n\t$(CC) $^ lib/*/more.c -o $@\n",
}
NUMBER = "int more(void);\nint number(void) { return more() + 1; }\n"
READING = '__asm__(".section .rodata\\n.incbin \\"answers.txt\\"\\n.text\\n");\n' + NUMBER
READING_ABOVE = READING.replace("answers.txt", "../answers.txt")

BUILDS = {
    "cmake in a folder": "os.mkdir('build') or run('cmake', '..', cwd='build') and"
    " run('make', cwd='build') and run('./prog', cwd='build')",
    "cmake from elsewhere": "os.mkdir('build') or run('cmake', '-S', HERE, '-B', HERE + '/build')"
    " and run('cmake', '--build', HERE + '/build') and run(HERE + '/build/prog')",
    "cmake that makes its folder": "run('cmake', '-S', '.', '-Bout', '-DNAME=' + path) and"
    " run('cmake', '--build', 'out') and run('out/prog')",
    "cmake in a shell": "run('mkdir build && cd build && cmake .. >&2 && make >&2 && ./prog')",
    "make": "run('make') and run('./prog')",
    "a pattern in a shell": "run('gcc src/*.c lib/*/*.c number.c -o prog && ./prog')",
}


def evaluate(tmp_path, steps, source, layer):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(text)
    text = EVALUATOR.replace("STEPS", steps).replace("PLACE", "'number.c'")
    (tmp_path / "evaluator.py").write_text(text)
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    return run_evaluator(source, evaluator, LIMITS, layer, (), file_name="candidate.c")


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_reads_the_sources_that_its_lists_and_patterns_name(confined, tmp_path, build):
    require("cmake" if "cmake" in build else "gcc")
    result = evaluate(tmp_path, BUILDS[build], NUMBER, confined)
    assert result.error is None
    assert result.output["metrics"]["number"] == 41.0


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_by_lists_and_patterns_reads_no_answers(confined, tmp_path, build):
    require("cmake" if "cmake" in build else "gcc")
    for source in (READING, READING_ABOVE):
        result = evaluate(tmp_path, BUILDS[build], source, confined)
        assert "answers.txt" in result.error


EXTENSION = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "number", 0, -1, 0};
PyMODINIT_FUNC PyInit_number(void) {
    PyObject *made = PyModule_Create(&module);
    PyModule_AddIntConstant(made, "value", 41);
    return made;
}
"""


def test_an_extension_of_python_is_built_with_its_headers(confined, tmp_path):
    """They are beside the standard library where Python is not the system's."""
    require("gcc")
    if not Path(get_path("include"), "Python.h").exists():
        pytest.skip("the headers of Python are not installed: apt-get install python3-dev")
    headers = "__import__('sysconfig').get_path('include')"
    steps = (
        f"run('gcc', '-shared', '-fPIC', '-I' + {headers}, path, '-o', 'number.so')"
        " or __import__('number').value"
    )
    result = evaluate(tmp_path, steps, EXTENSION, confined)
    assert result.error is None
    assert result.output["metrics"]["number"] == 41.0
