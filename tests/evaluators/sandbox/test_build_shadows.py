"""What an evaluator builds of its candidate is left beside it, and nothing else is."""

import pytest
from needed_programs import require

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

LIMITS = Limits(wall_seconds=60, processes=64, memory_mb=4096)
EVALUATOR = """
import asyncio, json, os, shutil, subprocess, sys
HERE = os.path.dirname(os.path.abspath(__file__))
LISTED = ["answers.txt", "Makefile", "check.py"]
def run(*words, **named):
    named["shell"] = len(words) == 1
    done = subprocess.run(words[0] if len(words) == 1 else words, text=True,
        capture_output=True, **named)
    if done.returncode: raise RuntimeError(done.stdout + done.stderr)
    return done.stdout
def evaluate(path):
    before = {*os.listdir()}
    number = float(STEPS)
    return {"number": number, "made": repr(sorted({*os.listdir()} - before))}
"""
C = '#include <stdio.h>\nint main(void) { puts("41"); return 0; }\n'
RUST = 'fn main() { println!("41"); }\n'
JAVA = """
class X {
    static class Inner {}
    public static void main(String[] words) { System.out.println("41"); }
}
"""
FORTRAN = """
module numbers
  integer, parameter :: number = 41
end module numbers
program main
  use numbers
  print *, number
end program main
"""
MAKEFILE = "prog: a.c\n\tgcc a.c -o prog\nclean:\n\trm -f prog *.o\n"
BUILDS = {
    "rustc": ("a.rs", RUST, "run('rustc', '-o', './bin', path) or run('./bin')", ["bin"]),
    "rustc, by a whole path": (
        "a.rs",
        RUST,
        "run('rustc', '-o', os.path.join(HERE, 'bin'), path) or run(os.path.join(HERE, 'bin'))",
        ["bin"],
    ),
    "rustc in a shell that also runs it": (
        "a.rs",
        RUST,
        "run(f'rustc -o bin {path} && ./bin')",
        ["bin"],
    ),
    "javac": (
        "X.java",
        JAVA,
        "run('javac', '-d', '.', path) or run('java', '-cp', '.', 'X')",
        ["X$Inner.class", "X.class"],
    ),
    "ar": (
        "a.c",
        C,
        "run('gcc', '-c', path) or run('ar', 'rcs', 'liba.a', 'a.o')"
        " or run('gcc', 'liba.a', '-o', 'prog') or run('./prog')",
        ["a.o", "liba.a", "prog"],
    ),
    "gcc --coverage": (
        "a.c",
        C,
        "run('gcc', '--coverage', path, '-o', 'prog') or run('./prog')",
        ["prog", "prog-a.gcno"],
    ),
    "gfortran -J": (
        "a.f90",
        FORTRAN,
        "run('gfortran', '-J', '.', path, '-o', 'prog') or run('./prog')",
        ["numbers.mod", "prog"],
    ),
    "make": (
        "a.c",
        C,
        "shutil.copy(path, 'a.c') and run('make') and run('./prog')",
        ["a.c", "prog"],
    ),
    "make clean": (
        "a.c",
        C,
        "shutil.copy(path, 'a.c') and run('make', 'clean') and run('make') and run('./prog')"
        " + '0' * len(run('make', 'clean')[:0])",
        ["a.c"],
    ),
    "rm": (
        "a.c",
        C,
        "(run('gcc', path, '-o', 'prog') or run('./prog')) + run('rm', 'prog')",
        [],
    ),
    "rm of a folder": (
        "a.c",
        C,
        "os.mkdir('out') or run('gcc', path, '-o', 'out/prog')"
        " or run('./out/prog') + run('rm', '-r', 'out')",
        [],
    ),
    "cp": (
        "a.c",
        C,
        "run('cp', path, 'b.c') or run('gcc', 'b.c') or run('./a.out')",
        ["a.out", "b.c"],
    ),
    "a name that is computed": (
        "a.c",
        C,
        "run(f'gcc {path} -o prog_$$ && mv prog_$$ prog && ./prog')",
        ["prog"],
    ),
    "asyncio": (
        "a.c",
        C,
        "asyncio.run(built('gcc', path, '-o', 'prog')) or run('./prog')",
        ["prog"],
    ),
}
COMPILERS = {"rs": "rustc", "java": "javac", "f90": "gfortran", "c": "gcc"}
WITH_ASYNCIO = """
async def built(*words):
    return await (await asyncio.create_subprocess_exec(*words)).wait()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "answers.txt").write_text("42")
    (tmp_path / "check.py").write_text("import random\nprint(41)\n")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def evaluate(folder, steps, source, layer, name):
    text = EVALUATOR.replace("STEPS", steps) + WITH_ASYNCIO
    (folder / "evaluator.py").write_text(text)
    evaluator = EvaluatorFile(folder, folder / "evaluator.py")
    return run_evaluator(source, evaluator, LIMITS, layer, (), file_name=name)


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_works_beside_the_evaluator(confined, folder, build):
    name, source, steps, made = BUILDS[build]
    require(COMPILERS[name.partition(".")[2]])
    result = evaluate(folder, steps, source, confined, name)
    assert result.error is None
    assert result.output["metrics"] == {"number": 41.0, "made": repr(made)}


FORGING = r"""
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int forge(const char *place, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *file = fopen(path, "w");
    if (file) { fputs("forged", file); fclose(file); }
    return file != NULL;
}
int main(void) {
    const char *names[] = {"answers.txt", "evaluator.py", "check.py", "random.py", "a.py",
        "json.so", ".Rprofile", "other.json", "expected.txt"};
    char folder[4096];
    ssize_t size = readlink("a.c", folder, sizeof folder - 1);
    folder[size < 0 ? 0 : size] = 0;
    if (size > 0) *strrchr(folder, '/') = 0;
    for (int i = 0; i < 9; i++) {
        unlink(names[i]);
        forge(".", names[i]);
        if (forge(folder, names[i])) forge(".", "a.o");  /* told to the evaluator */
    }
    symlink("answers.txt", "a.d");
    rename("a.c", "a.i");
    mkdir("random", 0777);
    forge("random", "__init__.py");
    FILE *answers = fopen("answers.txt", "r");
    unlink("answers.txt");
    printf("%d\n", fopen(strcat(folder, "/answers.txt"), "r") != NULL);
    return 0;
}
"""


def test_a_program_that_a_build_runs_replaces_and_plants_nothing(confined, folder):
    require("gcc")
    (folder / "Makefile").write_text("all: a.c\n\tgcc a.c -o prog\n\t@./prog\n")
    steps = "(shutil.copy(path, 'a.c') and run('make', '-s')) + run(sys.executable, 'check.py')"
    result = evaluate(folder, f"({steps}).replace('\\n', '')", FORGING, confined, "a.c")
    assert result.error is None
    # 0, and what check.py says
    assert result.output["metrics"] == {"number": 41.0, "made": repr(["a.c", "prog"])}
    told = result.log.partition("or no word of the command or its script names it: ")[2]
    assert told.startswith("'.Rprofile', 'a.py', 'check.py', ")


def test_a_build_reads_no_answers(confined, folder):
    require("rustc")
    source = 'fn main() { println!("{}", include_str!("PATH")); }\n'
    for path in ("answers.txt", "../folder/answers.txt", f"{folder}/answers.txt"):
        shown = source.replace("PATH", path)
        steps = "shutil.copy(path, 'b.rs') and run('rustc', 'b.rs') or run('./b')"
        result = evaluate(folder, steps, shown, confined, "a.rs")
        assert "couldn't read" in result.error


def test_a_build_leads_the_evaluator_to_no_answers(confined, folder):
    """Its folder of links lies where a candidate may move it."""
    require("gcc")
    (folder / "expected").mkdir()
    (folder / "expected" / "out.txt").write_text("42")
    source = r"""
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(void) {
        char here[4096], there[4096];
        getcwd(here, sizeof here);
        snprintf(there, sizeof there, "%s/given", getenv("TMPDIR"));
        rename("expected", there);
        rename(here, there);
        return 0;
    }
    """
    (folder / "Makefile").write_text("all: a.c\n\tgcc a.c -o prog\n\t@./prog\n")
    found = "os.path.exists(os.environ['TMPDIR'] + '/given/' + name) for name in"
    steps = (
        "shutil.copy(path, 'a.c') and run('make', '-s') and 0 or sum("
        f"{found} ['answers.txt', 'out.txt', 'expected/out.txt', 'evaluator.py'])"
    )
    (folder / "evaluator.py").touch()
    result = evaluate(folder, steps, source, confined, "a.c")
    assert result.error is None
    assert result.output["metrics"]["number"] == 0.0
