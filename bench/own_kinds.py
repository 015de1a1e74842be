"""Problems of many kinds, each as the files and commands of a user; for `own_problems.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    Attributes:
        name: The kind in a few words.
        files: What the user writes, by path; the problem's folder is `problem`.
        programs: Programs that it needs.
        setup: Commands of the user before the run.
    """

    name: str
    files: Mapping[str, str]
    programs: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()


def folder_kind(
    name: str, settings: str, files: Mapping[str, str], *programs: str, task: str = ""
) -> Kind:
    """A kind whose user writes a problem folder."""
    texts = {"problem.md": task or "Make the program better.\n", **files}
    if settings:
        texts["problem.toml"] = settings
    return Kind(name, {f"problem/{path}": dedent(text) for path, text in texts.items()}, programs)


SUM_TASK = "Read n from standard input, and print the sum of i % 7 for i < n, fast.\n"
SUMS = {
    "cpp": """\
        #include <algorithm>
        #include <iostream>

        // EVOLVE-BLOCK-START
        const int BLOCK = 64;
        // EVOLVE-BLOCK-END

        int main() {
            int n = 0;
            long sum = 0;
            std::cin >> n;
            for (int start = 0; start < n; start += BLOCK)
                for (int i = start; i < std::min(n, start + BLOCK); i++) sum += i % 7;
            std::cout << sum << "\\n";
        }
        """,
    "rs": """\
        use std::io::stdin;

        // EVOLVE-BLOCK-START
        const BLOCK: u64 = 64;
        // EVOLVE-BLOCK-END

        fn main() {
            let mut line = String::new();
            stdin().read_line(&mut line).unwrap();
            let n: u64 = line.trim().parse().unwrap();
            let starts = (0..n).step_by(BLOCK as usize);
            let numbers = starts.flat_map(|start| start..n.min(start + BLOCK));
            let sum: u64 = numbers.map(|i| i % 7).sum();
            println!("{sum}");
        }
        """,
    "go": """\
        package main

        import "fmt"

        // EVOLVE-BLOCK-START
        const block = 64
        // EVOLVE-BLOCK-END

        func main() {
            n, sum := 0, 0
            fmt.Scan(&n)
            for start := 0; start < n; start += block {
                for i := start; i < start+block && i < n; i++ {
                    sum += i % 7
                }
            }
            fmt.Println(sum)
        }
        """,
    "js": """\
        // EVOLVE-BLOCK-START
        const BLOCK = 64;
        // EVOLVE-BLOCK-END

        const n = Number(require("fs").readFileSync(0, "utf8"));
        let sum = 0;
        for (let start = 0; start < n; start += BLOCK)
          for (let i = start; i < Math.min(n, start + BLOCK); i++) sum += i % 7;
        console.log(sum);
        """,
    "f90": """\
        module settings
          ! EVOLVE-BLOCK-START
          integer, parameter :: block = 64
          ! EVOLVE-BLOCK-END
        end module settings

        program sums
          use settings
          implicit none
          integer :: n, start, i
          integer(8) :: total
          read *, n
          total = 0
          do start = 0, n - 1, block
            do i = start, min(n, start + block) - 1
              total = total + mod(i, 7)
            end do
          end do
          print *, total
        end program sums
        """,
}
MILLION = sum(i % 7 for i in range(1_000_000))
SUM_SCORE = f"""\
    CALLS = [{{"stdin": "1000000\\n"}}]


    def score(results):
        [result] = results
        if result.error or result.output["stdout"].split() != ["{MILLION}"]:
            raise ValueError(result.error or f"expected {MILLION}: {{result.output}}")
        return {{"combined_score": 1 / (0.01 + result.output["seconds"])}}
    """


def run_sums(name: str, ending: str, commands: str, program: str) -> Kind:
    """A program in another language that `problem.toml` says how to build and run."""
    settings = f'program = "sums.{ending}"\n{commands}timeout = 60\ncall_timeout = 10\n'
    files = {f"sums.{ending}": SUMS[ending], "evaluator.py": SUM_SCORE}
    return folder_kind(name, settings, files, program, task=SUM_TASK)


def built_sums(name: str, ending: str, build: str, program: str) -> Kind:
    """An `evaluate(program_path)` that builds the program and times it."""
    evaluator = f"""\
        import subprocess
        import tempfile
        import time


        def evaluate(program_path):
            with tempfile.TemporaryDirectory() as folder:
                binary = f"{{folder}}/program"
                subprocess.run([{build}], check=True)
                begin = time.perf_counter()
                done = subprocess.run([binary], input="1000000\\n", text=True, capture_output=True)
                seconds = time.perf_counter() - begin
            if done.stdout.split() != ["{MILLION}"]:
                return {{"combined_score": 0.0, "error": done.stdout + done.stderr}}
            return {{"combined_score": 1 / (0.01 + seconds), "seconds": seconds}}
        """
    files = {f"initial_program.{ending}": SUMS[ending], "evaluator.py": evaluator}
    return folder_kind(name, "", files, program, task=SUM_TASK)


CARGO = """\
    import os
    import shutil
    import subprocess
    from pathlib import Path

    MANIFEST = '[package]\\nname = "judged"\\nversion = "0.1.0"\\nedition = "2021"\\n'


    def evaluate(program_path):
        os.makedirs("project/src")
        Path("project/Cargo.toml").write_text(MANIFEST)
        shutil.copy(program_path, "project/src/main.rs")
        os.chdir("project")
        built = subprocess.run(["cargo", "build", "--release"], capture_output=True, text=True)
        if built.returncode:
            return {"combined_score": 0.0, "error": built.stderr[-2000:]}
        words = ["target/release/judged"]
        done = subprocess.run(words, input="1000000\\n", text=True, capture_output=True)
        return {"combined_score": float(done.stdout.strip() == "2999997")}
    """
POOL = """\
    import multiprocessing
    import os
    import runpy
    from pathlib import Path


    def judged(job):
        program_path, number = job
        return runpy.run_path(program_path)["square"](number)


    def evaluate(program_path):
        os.chdir(Path(__file__).parent)
        with open("data/cases.txt") as file:
            numbers = [int(line) for line in file]
        with multiprocessing.Pool(4) as pool:
            found = pool.map(judged, [(program_path, number) for number in numbers])
        with open("answers.txt", "w") as file:
            file.write("\\n".join(map(str, found)))
        errors = [abs(a - b * b) for a, b in zip(found, numbers)]
        return {"combined_score": 1 / (1 + sum(errors))}
    """
SQL_START = """\
    SELECT city, SUM(amount) AS total
    FROM orders
    WHERE amount > 10
    GROUP BY city
    ORDER BY total DESC
    LIMIT 20;
    """
SQL_SCORE = """\
    import random
    import sqlite3
    from time import perf_counter

    CHOICE = random.Random(1)
    DATA = sqlite3.connect(":memory:", check_same_thread=False)
    DATA.execute("CREATE TABLE orders (city TEXT, amount INTEGER)")
    DATA.executemany(
        "INSERT INTO orders VALUES (?, ?)",
        [(f"city {CHOICE.randrange(500)}", CHOICE.randrange(100)) for _ in range(50_000)],
    )


    def score(text):
        begin = perf_counter()
        try:
            rows = DATA.execute(text).fetchall()
        except sqlite3.Error as error:
            raise ValueError(f"SQLite says: {error}") from None
        seconds = perf_counter() - begin
        if not rows or len(rows[0]) != 2:
            raise ValueError("expected rows of a city and its total")
        return {"combined_score": 1 / (0.01 + seconds), "seconds": seconds}
    """
PROMPT_START = """\
    You answer the customers of a bicycle shop, and your name is Robin.
    Ask for the order number, and promise no date of delivery.
    Hand complaints over to a colleague of the workshop.
    """
PROMPT_SCORE = """\
    from openai import OpenAI

    CLIENT = OpenAI()


    def score(text):
        question = "When is my order delivered?"
        messages = [{"role": "system", "content": text}, {"role": "user", "content": question}]
        answer = CLIENT.chat.completions.create(model="assistant", messages=messages)
        reply = answer.choices[0].message.content
        return {"combined_score": ("order number" in reply) + 1 / len(text.split()), "reply": reply}
    """
TRITON_START = """\
    import triton
    import triton.language as tl

    BLOCK = 64


    @triton.jit
    def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out + offsets, tl.load(x + offsets, mask) + tl.load(y + offsets, mask), mask)
    """
TRITON_SCORE = """\
    import ast


    def score(text):
        found = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found[node.targets[0].id] = node.value.value
        block = found.get("BLOCK", 0)
        if "@triton.jit" not in text or block <= 0:
            raise ValueError("expected a kernel with @triton.jit and a positive BLOCK")
        return {"combined_score": 1 / (1 + abs(block - 1024) / 1024)}
    """
PACKAGE = {
    "schedule/pyproject.toml": """\
        [project]
        name = "schedule"
        version = "0.1"
        """,
    "schedule/src/schedule/__init__.py": "from schedule.order import order\n",
    "schedule/src/schedule/order.py": """\
        WEIGHT = 1.0


        def order(jobs):
            return sorted(jobs, key=lambda job: job[0] - WEIGHT * job[1])
        """,
    "schedule/bench.py": """\
        import sys

        sys.path.insert(0, "src")
        from schedule import order

        JOBS = [(n * 7 % 13 + 1, n * 5 % 11 + 1) for n in range(40)]
        passed, cost = 0, 0
        for duration, weight in order(JOBS):
            passed += duration
            cost += weight * passed
        print(30000 / cost)
        """,
    "schedule/test_order.py": """\
        import sys

        sys.path.insert(0, "src")
        from schedule import order

        assert sorted(order([(2, 1), (1, 3)])) == [(1, 3), (2, 1)]
        """,
}
TWO_OBJECTIVES = """\
    ARGUMENTS = {"n": 40}


    def score(output):
        if not isinstance(output, list) or len(output) != 40:
            raise ValueError("expected a list of 40 numbers")
        error = sum(abs(each - n**0.5) for n, each in enumerate(output))
        return {"accuracy": 1 / (1 + error), "size": float(sum(each != 0 for each in output))}
    """
GPU_SCORE = """\
    ARGUMENTS = {"size": 64}


    def score(output):
        return {"combined_score": 1 / (1 + abs(output - 4096) / 4096)}
    """
COMMIT = "git -c user.name=me -c user.email=me@localhost commit -q -m start"
KINDS = (
    Kind("example of `costada init`", {}, setup=("costada init problem",)),
    run_sums(
        "C++ kernel", "cpp", 'build = "g++ -O2 {program} -o {binary}"\nrun = "{binary}"\n', "g++"
    ),
    run_sums("Rust", "rs", 'build = "rustc -O {program} -o {binary}"\nrun = "{binary}"\n', "rustc"),
    run_sums("Go", "go", 'build = "go build -o {binary} {program}"\nrun = "{binary}"\n', "go"),
    run_sums("Node", "js", 'run = "node {program}"\n', "node"),
    built_sums(
        "C++ that an evaluator builds", "cpp", '"g++", "-O2", program_path, "-o", binary', "g++"
    ),
    built_sums(
        "Fortran that an evaluator builds",
        "f90",
        '"gfortran", "-O2", program_path, "-o", binary',
        "gfortran",
    ),
    built_sums(
        "Go that an evaluator builds", "go", '"go", "build", "-o", binary, program_path', "go"
    ),
    folder_kind(
        "Cargo project that an evaluator builds",
        "timeout = 60\n",
        {"initial_program.rs": SUMS["rs"], "evaluator.py": CARGO},
        "cargo",
    ),
    folder_kind(
        "evaluator with a pool, a data file and `os.chdir`",
        "",
        {
            "initial_program.py": "SCALE = 1\n\n\ndef square(n):\n    return SCALE * n * n + 1\n",
            "evaluator.py": POOL,
            "data/cases.txt": "1\n2\n3\n",
        },
    ),
    folder_kind(
        "SQL timed inside `score`",
        'program = "query.sql"\n',
        {"query.sql": SQL_START, "evaluator.py": SQL_SCORE},
    ),
    folder_kind(
        "prompt",
        'program = "prompt.md"\nevaluation_dollars = 0.02\n\n[models]\nassistant = "offline"\n',
        {"prompt.md": PROMPT_START, "evaluator.py": PROMPT_SCORE},
    ),
    folder_kind(
        "Triton kernel as text",
        'program = "kernel.py"\nlanguage = "Triton"\n',
        {"kernel.py": TRITON_START, "evaluator.py": TRITON_SCORE},
    ),
    Kind(
        "package, `--edit`",
        {path: dedent(text) for path, text in PACKAGE.items()},
        setup=(
            "costada init problem --from-repo schedule --edit src/schedule/*.py"
            " --score 'python bench.py'",
        ),
    ),
    Kind(
        "git repository with a test",
        {path: dedent(text) for path, text in PACKAGE.items()},
        ("git",),
        setup=(
            "git -C schedule init -q",
            "git -C schedule add .",
            COMMIT.replace("git", "git -C schedule", 1),
            "costada init problem --from-repo schedule --edit src/schedule/order.py"
            " --score 'python bench.py' --test 'python test_order.py'",
        ),
    ),
    folder_kind(
        "two objectives",
        'entry_point = "roots"\nobjectives = ["accuracy:max", "size:min"]\n'
        "weights = { accuracy = 1.0, size = 0.001 }\n",
        {
            "initial_program.py": "def roots(n):\n    return [0.2 * i for i in range(n)]\n",
            "evaluator.py": TWO_OBJECTIVES,
        },
    ),
    folder_kind(
        "declares a GPU",
        'entry_point = "work"\ngpus = 1\n',
        {
            "initial_program.py": "BLOCK = 16\n\n\ndef work(size):\n    return BLOCK * size\n",
            "evaluator.py": GPU_SCORE,
        },
    ),
)
