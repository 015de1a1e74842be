"""What an evaluator builds of its candidate is left beside it, and nothing else is."""

import pytest
from needed_programs import require
from sandbox_runs import FORTRAN

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program

pytestmark = pytest.mark.process

LIMITS = Limits(wall_seconds=60, processes=64, memory_mb=4096)
EVALUATOR = """
import asyncio, json, os, shutil, subprocess, sys
HERE = os.path.dirname(os.path.abspath(__file__))
LISTED = ["answers.txt", "Makefile", "check.py", "judge.c", "macro.c", "include/glue.h", "judge.mk",
    "judge.rs", "glue.rs", "whole.rs", "parts.rs", "part/mod.rs"]
def run(*words, **named):
    named["shell"] = len(words) == 1
    done = subprocess.run(words[0] if len(words) == 1 else words, text=True,
        capture_output=True, **named)
    if done.returncode: raise RuntimeError(done.stdout + done.stderr)
    return done.stdout
def ended(*words):
    done = subprocess.run(words, text=True, capture_output=True)
    return f"{done.returncode}{done.stdout}"
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


NAMING_DATA = r"""
#include <stdio.h>
int main(void) {
    char text[99] = "";
    FILE *file = fopen(DATA, "r");
    puts(file && fgets(text, 99, file) ? text : DATA);
    return 0;
}
"""
BESIDE = {
    "a macro": "run('gcc', f'-DDATA=\"{HERE}/in.txt\"', path, '-o', HERE + '/prog')",
    "a macro in a shell": 'run(f"gcc \'-DDATA=\\"{HERE}/in.txt\\"\' {path} -o {HERE}/prog")',
    "a folder of a similar name": (
        "os.makedirs(HERE + '_build') or run('gcc', f'-DDATA=\"{HERE}/in.txt\"', path, '-o',"
        " HERE + '_build/prog') or shutil.copy(HERE + '_build/prog', HERE) and ''"
    ),
    "a path upwards": (
        "os.makedirs(HERE + '_build') or run('gcc', f'-DDATA=\"{HERE}/in.txt\"', path, '-o',"
        " HERE + '/../folder_build/prog') or shutil.copy(HERE + '_build/prog', HERE) and ''"
    ),
}


@pytest.mark.parametrize("words", BESIDE)
def test_a_build_names_what_its_program_reads_and_folders_beside_the_evaluator(
    confined, folder, words
):
    require("gcc")
    (folder / "in.txt").write_text("41\n")
    steps = f"{BESIDE[words]} or run('./prog', HERE + '/in.txt')"
    result = evaluate(folder, steps, NAMING_DATA, confined, "a.c")
    assert result.error is None
    assert result.output["metrics"]["number"] == 41.0


@pytest.mark.parametrize("named", ["'-L' + HERE, '-lf', '-Wl,-rpath,' + HERE", "HERE + '/libf.so'"])
def test_a_library_is_found_where_it_is_built(confined, folder, named):
    require("gcc")
    (folder / "f.c").write_text("int f(void) { return 0; }\n")
    library = "run('gcc', '-shared', '-fPIC', 'f.c', '-o', 'libf.so')"
    words = f"'gcc', path, {named}, '-o', HERE + '/prog'"
    steps = f"{library} or run({words}) or run('./prog')"
    source = "int f(void);\n" + C.replace("return 0", "return f()")
    result = evaluate(folder, steps, source, confined, "a.c")
    assert result.error is None
    assert result.output["metrics"]["number"] == 41.0


def test_a_build_that_fails_leaves_what_it_has_made(confined, folder):
    require("gcc")
    (folder / "Makefile").write_text("all: a.c\n\tgcc a.c -o prog\n\tfalse\n")
    steps = "ended('make', '-s') + run('./prog')"
    source = C.replace("41", "1")
    result = evaluate(folder, f"shutil.copy(path, 'a.c') and {steps}", source, confined, "a.c")
    assert result.error is None
    assert result.output["metrics"] == {"number": 21.0, "made": repr(["a.c", "prog"])}


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
    steps = "shutil.copy(path, 'a.c') and ended('make', '-s') + run(sys.executable, 'check.py')"
    result = evaluate(folder, f"({steps}).replace('\\n', '')", FORGING, confined, "a.c")
    assert result.error is None
    # It fails with 1 and says 0, and what check.py says
    assert result.output["metrics"] == {"number": 1041.0, "made": repr(["a.c", "prog"])}
    replaced = "in the place of the evaluator's: 'check.py', 'evaluator.py'. "
    assert replaced in result.log
    told = result.log.partition(", or its folder is read-only: ")[2]
    assert told.startswith("'.Rprofile', 'a.py', 'expected.txt', 'json.so', 'other.json'")


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


SPOILING = {
    "a file in its place": r"""
        getcwd(here, sizeof here);
        snprintf(there, sizeof there, "%s/there", getenv("TMPDIR"));
        rename(here, there);
        fclose(fopen(here, "w"));
    """,
    "a folder that nobody may write to": """
        mkdir("d", 0777);
        fclose(fopen("d/x.o", "w"));
        chmod("d", 0555);
    """,
    "a folder of the evaluator that nobody may write to": """
        fclose(fopen("out/kept", "w"));
        chmod("out", 0555);
        unlink("out");
        mkdir("out", 0777);
        fclose(fopen("out/x.o", "w"));
    """,
    "folders that are nested deeply": """
        for (int i = 0; i < 3000; i++) if (mkdir("d", 0777) || chdir("d")) return 1;
    """,
}


@pytest.mark.parametrize("deed", SPOILING)
def test_a_build_that_spoils_its_folder_breaks_no_evaluator(confined, folder, deed):
    require("gcc")
    headers = ("stdio.h", "stdlib.h", "sys/stat.h", "unistd.h")
    source = "".join(f"#include <{name}>\n" for name in headers)
    source += f"int main(void) {{ char here[4096], there[4096]; {SPOILING[deed]} return 0; }}"
    (folder / "Makefile").write_text("all: a.c\n\tgcc -w a.c -o prog\n\t@./prog\n")
    steps = "os.mkdir('out') or shutil.copy(path, 'a.c') and run('make', '-s') or '41'"
    result = evaluate(folder, steps, source, confined, "a.c")
    assert (result.error, result.output and result.output["metrics"]["number"]) == (None, 41.0)


EXCHANGING = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static void make(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (file) { fputs(text, file); fclose(file); }
}
int main(void) {
    char place[4096], code[4200], name[32];
    int pipe_fds[2];
    snprintf(place, sizeof place, "%s/package", getenv("TMPDIR"));
    snprintf(code, sizeof code, "%s/__init__.py", place);
    mkdir(place, 0755);
    make(code, "number = 666");
    chmod(place, 0311);  /* who cannot list it cannot remove it */
    for (int i = 0; i < 3000; i++) { sprintf(name, "%d.o", i); make(name, ""); }
    if (pipe(pipe_fds) || fork()) return read(pipe_fds[0], name, 1) != 1;
    fclose(stdout);
    fclose(stderr);
    for (int i = 0; ; i++) {
        renameat2(-100, place, -100, "check", RENAME_EXCHANGE);
        if (i == 100) write(pipe_fds[1], "x", 1);
    }
}
"""


def test_a_build_exchanges_nothing_while_what_it_made_is_moved(confined, folder):
    """A folder in the place of its output would be imported before `check.py`."""
    require("gcc")
    (folder / "Makefile").write_text("check: a.c\n\tgcc a.c -o check\n\t@./check\n")
    (folder / "check.py").write_text("number = 41\n")
    (folder / "judge.py").write_text("import check\nprint(check.number)\n")
    steps = "shutil.copy(path, 'a.c') and run('make', '-s') or run(sys.executable, 'judge.py')"
    for _ in range(4):
        result = evaluate(folder, steps, EXCHANGING, confined, "a.c")
        assert result.error is None
        assert result.output["metrics"]["number"] == 41.0


def test_a_build_whose_output_is_a_file_of_the_evaluator_fails(confined, folder):
    """Else the evaluator would start its own program for that of each candidate."""
    require("gcc")
    (folder / "prog").write_text("#!/bin/sh\necho 40\n")
    (folder / "prog").chmod(0o755)
    steps = "ended('gcc', path, '-o', 'prog') + run('./prog')"
    result = evaluate(folder, f"({steps}).replace('\\n', '')", C, confined, "a.c")
    assert (result.error, result.output["metrics"]["number"]) == (None, 140.0)
    assert "in the place of the evaluator's: 'prog'. Remove these from" in result.log


def test_a_library_is_left_only_where_a_word_names_it(confined, folder):
    """Python imports `check.so` before `check.py`."""
    require("gcc")
    source = "int number(void) { return 41; }\n"
    makefile = "out/check.so: a.c\n\tmkdir -p out\n\tgcc -shared a.c -o out/check.so\n"
    (folder / "Makefile").write_text(f"{makefile}\tcp out/check.so out/a.so\n\tcp out/*.so .\n")
    loaded = "__import__('ctypes').CDLL('./out/check.so').number()"
    steps = f"shutil.copy(path, 'a.c') and run('make', '-s') or {loaded}"
    result = evaluate(folder, steps, source, confined, "a.c")
    assert result.error is None
    assert result.output["metrics"] == {"number": 41.0, "made": repr(["a.c", "out"])}
    assert "read-only: 'a.so', 'check.so', 'out/a.so'. " in result.log


READING = """
__asm__(".section .rodata\\nanswer: .incbin \\"answers.txt\\"\\n.byte 0\\n.text\\n");
extern const char answer[] __asm__("answer");
static const char *number(void) { return answer; }
"""
SOURCES = {
    "judge.c": '#include <stdio.h>\n#include "glue.h"\nint main(void) { puts(number()); }\n',
    "include/glue.h": '#include "solution.h"\n',
    "macro.c": '#include <stdio.h>\n#define GLUE "glue.h"\n#include GLUE\n'
    "int main(void) { puts(number()); }\n",
    "judge.rs": 'mod glue;\nfn main() { println!("{}", glue::solution::number()); }\n',
    "glue.rs": '#[path = "solution.rs"]\npub mod solution;\n',
    "whole.rs": 'include!("glue.rs");\nfn main() { println!("{}", solution::number()); }\n',
    "parts.rs": 'pub(crate) mod part;\nfn main() { println!("{}", part::solution::number()); }\n',
    "part/mod.rs": "pub mod solution;\n",
    "judge.mk": "judge: judge.c\n\tgcc -Iinclude -Ibuild -I. $< -o $@\n",
}
NUMBER_C = 'static const char *number(void) { return "41"; }'
NUMBER_RUST = "pub fn number() -> i32 { 41 }"
READING_RUST = 'pub fn number() -> &\'static str { include_str!("answers.txt") }'
INCLUDING = {
    "gcc": ("solution.h", READING, NUMBER_C, "'gcc', '-Iinclude', '-I.', 'judge.c'"),
    "gcc, from a folder that was made": (
        *("build/solution.h", READING, NUMBER_C),
        "'gcc', '-Iinclude', '-Ibuild', '-I.', 'judge.c'",
    ),
    "make": ("solution.h", READING, NUMBER_C, "'make', '-s', '-f', 'judge.mk'"),
    "make, from a folder that was made": (
        *("build/solution.h", READING, NUMBER_C),
        "'make', '-s', '-f', 'judge.mk'",
    ),
    "rustc": ("solution.rs", READING_RUST, NUMBER_RUST, "'rustc', 'judge.rs'"),
    "rustc, include!": ("solution.rs", READING_RUST, NUMBER_RUST, "'rustc', 'whole.rs'"),
    "rustc, mod.rs": (
        *("part/solution.rs", READING_RUST.replace("answers", "../answers"), NUMBER_RUST),
        "'rustc', 'parts.rs'",
    ),
}


def judged(folder, layer, name, source, words):
    """What an evaluator says that builds a program of its own with a candidate at a path."""
    for path, text in SOURCES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    output = "" if "'make'" in words else ", '-o', 'judge'"
    steps = f"os.mkdir('build') or shutil.copy(path, '{name}') and run({words}{output})"
    return evaluate(folder, f"{steps} or run('./judge')", source, layer, "a.txt")


@pytest.mark.parametrize("build", INCLUDING)
def test_a_source_of_the_evaluator_brings_the_candidate_no_answers(confined, folder, build):
    name, reading, other, words = INCLUDING[build]
    require("rustc" if build.startswith("rustc") else "gcc")
    result = judged(folder, confined, name, other, words)
    assert result.error is None
    assert result.output["metrics"]["number"] == 41.0
    assert "answers.txt" in judged(folder, confined, name, reading, words).error


def test_a_source_that_a_macro_names_brings_no_answers(confined, folder):
    """Nothing says which file that is: the build fails, as it may read none but those it names."""
    require("gcc")
    words = "'gcc', '-Iinclude', '-I.', 'macro.c'"
    assert "glue.h" in judged(folder, confined, "solution.h", READING, words).error


MAKEFILE_OF_CANDIDATE = """
all: statistics.py
\t@for each in $(TMPDIR)/build-*; do cp main.txt $$each/statistics.py; done; cat main.txt
statistics.py:
"""
MAKEFILE_THAT_WRITES_ONE = """
all:
\t@printf '# ../folder/answers.txt\\nread:\\n\\t@cat ../folder/answers.txt\\n' > GNUmakefile
read:
\t@echo 41
"""


def of_folder(folder, layer, makefile, steps, text="41"):
    """What an evaluator says of a candidate that is a folder with a makefile of its own."""
    (folder / "evaluator.py").write_text(EVALUATOR.replace("STEPS", steps))
    program = Program.of({"main.txt": text, "Makefile": makefile})
    evaluator = EvaluatorFile(folder, folder / "evaluator.py")
    return run_evaluator(program, evaluator, LIMITS, layer, ())


def test_a_makefile_of_the_candidate_moves_nothing_beside_the_evaluator(confined, folder):
    forged = "print(41)\ndef mean(values): return 666\n"
    steps = "(run('make', '-s', '-C', path) and __import__('statistics').mean([41, 41]))"
    result = of_folder(folder, confined, MAKEFILE_OF_CANDIDATE, steps, forged)
    assert result.error is None
    assert result.output["metrics"] == {"number": 41.0, "made": "[]"}
    assert "read-only: 'statistics.py'. " in result.log


def test_a_makefile_that_a_build_has_written_shows_no_answers(confined, folder):
    steps = "run('make', '-s', '-C', path) + run('make', '-s', '-C', path, 'read')"
    (folder / "Makefile").unlink()
    result = of_folder(folder, confined, MAKEFILE_THAT_WRITES_ONE, steps)
    assert "answers.txt: Permission denied" in result.error
