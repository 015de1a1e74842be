"""Problem folders: their files, and evaluators that judge apart from candidates or beside them."""

import os
import sys
import tomllib
from shutil import rmtree

import pytest
from declared_limits import untested_limits
from needed_programs import how_to_install

from costada.evaluators.folder_files import shown_files
from costada.evaluators.folder_settings import FolderSettings, read_settings
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.values.candidate import Program
from costada.values.evaluation import EVALUATOR_FAULT, LOG, NOT_SCORED, UNSHOWN, Direction

pytestmark = pytest.mark.process

PROGRAM = "def answer(): return 5.0\n"
NATIVE = """def score(output):
    return {'combined_score': output / 10, 'value': output, 'hint': 'on'}
"""
RUN_PROGRAM = """
import importlib.util
def run_program(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.answer()
"""
SKYDISCOVER = """
from helper import run_program
def evaluate(program_path):
    try:
        value = run_program(program_path)
    except Exception as error:
        return {"combined_score": 0.0, "error": str(error)}
    return {"combined_score": value / 10, "value": value, "hint": "go on", "stage": None}
"""
OPENEVOLVE = """
from dataclasses import dataclass, field
from helper import run_program
@dataclass
class EvaluationResult:
    metrics: dict
    artifacts: dict = field(default_factory=dict)
def evaluate(program_path):
    value = run_program(program_path)
    return EvaluationResult({"combined_score": value / 10}, {"stderr": b"quiet"})
"""
KINDS = ("score(output)", "evaluate(program_path)")
both = pytest.mark.parametrize("kind", KINDS)


def returning(text, kind="evaluate(program_path)"):
    return f"def {kind}:\n    return {text}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("problems")


@pytest.fixture
def make_folder(place):
    """Write a problem folder, always in the same place: its sandbox is prepared once."""

    def make(evaluator=NATIVE, settings="", program=PROGRAM, name="tens", **neighbours):
        folder = place / name
        rmtree(folder, ignore_errors=True)
        folder.mkdir()
        texts = {"problem.md": "Return a number up to 10.", "initial_program.py": program}
        texts |= {"evaluator.py": evaluator, "problem.toml": 'entry_point = "answer"\n' + settings}
        texts |= {f"{module}.py": text for module, text in neighbours.items()}
        for file_name, text in texts.items():
            (folder / file_name).write_text(text)
        return folder

    return make


def test_an_entry_point_that_the_start_of_an_evaluate_lacks_is_refused(make_folder):
    folder = make_folder(SKYDISCOVER, program="def other(): return 1\n", helper=RUN_PROGRAM)
    with pytest.raises(ValueError, match="entry_point is 'answer'; expected a name that the init"):
        load_folder(folder)
    (folder / "initial_program.py").write_text("answer = lambda: 1\n")
    assert load_folder(folder).entry_point == "answer"


@pytest.mark.parametrize(
    ("evaluator", "files"),
    [
        ("COMMAND = ['bash', 'run.sh']\n", {"run.sh": ". ./lib.sh\ncat data/one.txt\n"}),
        ("COMMAND = 'cmake -B build'\n", {"CMakeLists.txt": "project(one)\n"}),
        ("COMMAND = ['cargo', 'build']\n", {"Cargo.toml": "[package]\n"}),
    ],
)
def test_what_a_script_names_and_what_a_build_reads_is_shown(tmp_path, evaluator, files):
    beside = {"evaluator.py": evaluator, "lib.sh": "true\n", "data/one.txt": "1", **files}
    for name, text in beside.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "other.txt").write_text("nobody names it, but a build may")
    shown = {str(path.relative_to(tmp_path)) for path in shown_files(tmp_path)}
    assert shown >= set(beside)
    assert ("other.txt" in shown) == ("run.sh" not in beside)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ('"python3 tools/judge.py < data/in.txt"', {"tools/judge.py", "data/in.txt"}),
        (
            'f"python3 {HERE}/tools/judge.py --of={HERE}/data/*.txt"',
            {"tools/judge.py", "data/in.txt"},
        ),
        ("\"python3 -c 'import helper2; print(helper2.V)'\"", {"helper2.py"}),
        ('"python3 -m tools.judge; cat in.txt"', {"tools/judge.py", "in.txt"}),
        ('"the data are judged by tools"', set()),
    ],
)
def test_what_a_command_of_a_shell_names_is_shown(tmp_path, command, named):
    for name in ("tools/judge.py", "data/in.txt", "helper2.py", "in.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "evaluator.py").write_text(f"COMMAND = {command}\n")
    shown = {str(path.relative_to(tmp_path)) for path in shown_files(tmp_path)}
    assert shown == {"evaluator.py", *named}


def test_a_folder_without_settings_takes_its_name_and_the_defaults(make_folder):
    folder = make_folder(SKYDISCOVER, helper=RUN_PROGRAM)
    (folder / "problem.toml").write_text("")
    for is_there in (True, False):
        if not is_there:
            (folder / "problem.toml").unlink()
        problem = load_folder(folder)
        assert (problem.name, problem.task) == ("tens", "Return a number up to 10.")
        assert (problem.initial_program, problem.evaluator_source) == (PROGRAM, SKYDISCOVER)
        assert (problem.entry_point, problem.reference, problem.human) == (None, None, None)
        assert (problem.direction, problem.limits) == (Direction.MAXIMIZE, Limits(processes=256))


def test_settings_fill_every_field_of_the_problem(make_folder):
    settings = (
        'name = "ten"\ntimeout = 7\ncall_timeout = 2.5\nmemory_mb = 300\nthreads = 3\n'
        'processes = 2\nscratch_mb = 9\nresult_mb = 3\npreload = ["json"]\nsandbox = "process"\n'
        'source = "a book"\nhuman = 9.5\nreference = 0.25\ndirection = "minimize"\n'
        'timing_metrics = ["lap"]\nseed_objective = 0.5\nallow_invalid_start = true\n'
    )
    problem = load_folder(make_folder(settings=settings))
    assert problem.limits == Limits(
        wall_seconds=7,
        call_seconds=2.5,
        memory_mb=300,
        threads=3,
        processes=2,
        scratch_mb=9,
        result_bytes=3 * MEBIBYTE,
    )
    assert (problem.name, problem.entry_point, problem.sandbox) == ("ten", "answer", Layer.PROCESS)
    assert (tuple(problem.preload), tuple(problem.timing_metrics)) == (("json",), ("lap",))
    assert (problem.source, problem.human, problem.seed_objective) == ("a book", 9.5, 0.5)
    assert (problem.reference, problem.direction) == (0.25, Direction.MINIMIZE)
    assert problem.allow_invalid_start


@pytest.mark.parametrize("name", ["problem.md", "evaluator.py", "initial_program.py"])
def test_a_text_too_large_for_a_prompt_is_refused_by_its_name(make_folder, name):
    folder = make_folder()
    with (folder / name).open("a") as file:
        file.write("#" * 2**22)
    expected = rf"{name} has 4,194,[0-9]+ bytes; expected at most 4,194,304"
    with pytest.raises(ValueError, match=expected):
        load_folder(folder)


def test_settings_may_begin_with_a_byte_order_mark(make_folder):
    folder = make_folder()
    (folder / "problem.toml").write_bytes(b"\xef\xbb\xbfentry_point = 'f'\ntimeout = 7")
    assert load_folder(folder).limits.wall_seconds == 7


AT_MOST = "less than or equal to 1099511627776$"
SIZES = ("threads", "scratch_mb")
NAMED, MEASURED = "entry_point = 'answer'\n", "objectives = ['a:max', 'b:min']\n"

REFUSALS = [
    ("limit = 3", r"unknown key 'limit' \(known keys: name, program,"),
    ("tiemout = 3", r"unknown key 'tiemout', did you mean 'timeout'\? \(known keys"),
    ("memory = 9", r"unknown key 'memory', did you mean 'memory_mb'\?"),
    ("command = 'x'", "repository is missing; needed where command is given$"),
    ("metric = 'error'", "metric is 'error', which names a failure; expected another one to"),
    (
        f"metric = 'a'\n{MEASURED}weights = {{a = 1.0}}",
        r"metric is 'a' and weights is {'a': 1.0}; expected one of them$",
    ),
    ("timeout = 0", "timeout: got 0, expected greater than 0$"),
    ("timeout = '9'", "timeout: got '9', expected a number$"),
    ("timeout = inf", "timeout: got inf, expected a finite number$"),
    ("call_timeout = 0", "call_timeout: got 0, expected greater than 0$"),
    ("call_timeout = nan", "call_timeout: got nan, expected a finite number$"),
    ("memory_mb = 1.5", "memory_mb: got 1.5, expected an integer$"),
    ("memory_mb = 15", "memory_mb: got 15, expected greater than or equal to 16$"),
    *((f"{name} = 0", f"{name}: got 0, expected greater than or equal to 1$") for name in SIZES),
    ("processes = -1", "processes: got -1, expected greater than or equal to 0$"),
    *(
        (f"{name} = 1_099_511_627_777", f"{name}: got 1099511627777, expected {AT_MOST}")
        for name in ("memory_mb", *SIZES, "processes")
    ),
    ("result_mb = 0", "result_mb: got 0, expected greater than or equal to 1$"),
    ("result_mb = 1_048_577", "result_mb: got 1048577, expected less than or equal to 1048576$"),
    ("", "entry_point is missing; needed where"),
    ("entry_point = 'a b'", "entry_point is 'a b'; expected a function name$"),
    ("build = ' '", "build: got ' ', expected a non-empty string$"),
    ("run = ' '", "run: got ' ', expected a non-empty string$"),
    *(
        (f"{name} = 'one'", f"{name}: got 'one', expected a list, not one string$")
        for name in ("readable", "preload", "timing_metrics", "objectives", "focus")
    ),
    (f"{NAMED}preload = ['no_such_module']", "expected modules, found no no_such_module$"),
    ("direction = 'up'", "direction: got 'up', expected 'maximize' or 'minimize'$"),
    ("direction = 'minimize'", "reference is missing; needed where direction is 'minimize'$"),
    ("reference = 0.0", "reference: got 0.0, expected greater than 0$"),
    ("reference = -1.0", "reference: got -1.0, expected greater than 0$"),
    ("reference = inf", "reference: got inf, expected a finite number$"),
    ("cpus = 0", "cpus: got 0, expected greater than or equal to 1$"),
    ("gpus = -5e-324", "gpus: got -5e-324, expected greater than or equal to 0$"),
    ("gpus = 1.5", "gpus: got 1.5, expected an integer, or a fraction of one GPU$"),
    ("gpus = nan", "gpus: got nan, expected a finite number$"),
    ("sandbox = 'jail'", "sandbox: got 'jail', expected 'auto', 'process', 'landlock'"),
    ("allow_invalid_start = 1", "allow_invalid_start: got 1, expected true or false$"),
    ("start = 'some'", "start: got 'some', expected 'none'$"),
    ("batch = 0", "batch: got 0, expected greater than or equal to 1$"),
    ("racing_error = -5e-324", "racing_error: got -5e-324, expected greater than or equal to 0$"),
    ("racing_error = 1.0", "racing_error: got 1.0, expected less than 1$"),
    ("racing_error = nan", "racing_error: got nan, expected a finite number$"),
    ("prompt_tokens = 0", "prompt_tokens: got 0, expected greater than or equal to 1$"),
    ("repeats = 1_001", "repeats: got 1001, expected less than or equal to 1000$"),
    *(
        (f"{name} = ' '", f"{name}: got ' ', expected a non-empty string$")
        for name in ("name", "metric", "language")
    ),
    (r'name = "a\nb"', r"name: got 'a\\nb', expected printable characters$"),
    *(
        (f"program = {value}", rf"program: got {shown}, expected a file name, or a list of them$")
        for value, shown in (
            ("3", "3"),
            ("[]", r"\[\]"),
            ("['a', 3]", r"\['a', 3\]"),
        )
    ),
    *(
        (f"{name} = {{judge = 3}}", rf"{name}: got {{'judge': 3}}, expected 'provider:name' or")
        for name in ("models", "candidate_models")
    ),
    ("gpu_driver = 'nvidia'", "gpu_driver is 'nvidia'; expected none without gpus$"),
    ("aggregate = 'mean'", "aggregate is 'mean'; expected none without repeats of at least 2$"),
    ("evaluation_dollars = 1.0", "evaluation_dollars is 1.0; expected none without models or"),
    (
        "timing_metrics = ['combined_score']",
        "timing_metrics has 'combined_score'; expected metrics",
    ),
    ("metric = 'a'\ntiming_metrics = ['a']", "timing_metrics has 'a'; expected metrics beside"),
    ("timing_metrics = ['']", "timing_metrics has ''; expected metrics beside the score$"),
    ("repeats = 0", "repeats: got 0, expected greater than or equal to 1$"),
    ("aggregate = 'best'", "aggregate: got 'best', expected 'median', 'mean', 'min' or 'max'$"),
    *(
        (
            f"{MEASURED}weights = {{a = {weight}}}",
            rf"weights.a: got {weight}, expected a positive number \(an objective that is minimis",
        )
        for weight in (-1.0, 0.0)
    ),
    (f"{MEASURED}weights = {{a = nan}}", "weights.a: got nan, expected a finite number$"),
    *(
        (
            f"{name} = {{'a b' = 'openai:x'}}",
            f"{name}: got .*, expected names of 1 to 120 .* got 'a b'$",
        )
        for name in ("models", "candidate_models")
    ),
    ("evaluation_dollars = 0.0", "evaluation_dollars: got 0.0, expected greater than 0$"),
    ("evaluation_dollars = nan", "evaluation_dollars: got nan, expected a finite number$"),
    ("network = ['a/b']", "network.0: got 'a/b', expected a host name or an address, with a port"),
    ("keys = ['A-B']", "keys.0: got 'A-B', expected the name of an environment variable$"),
    ("network = ['a', 'a']", r"network: got \['a', 'a'\], expected no name twice, found 'a'$"),
    ("gpu_driver = 'metal'", "gpu_driver: got 'metal', expected 'nvidia' or 'dri'$"),
    ("human = nan", "human: got nan, expected a finite number$"),
    ("seed_objective = inf", "seed_objective: got inf, expected a finite number$"),
    ("source = 1930", "source: got 1930, expected a valid string$"),
]


@pytest.mark.parametrize(("settings", "expected"), REFUSALS)
def test_a_wrong_setting_is_refused_with_its_value_and_what_was_expected(
    make_folder, settings, expected
):
    folder = make_folder()
    (folder / "problem.toml").write_text(settings)
    with pytest.raises(ValueError, match=expected):
        load_folder(folder)


def test_each_limit_of_a_setting_has_a_row_just_outside():
    rows = [tomllib.loads(settings) for settings, _ in REFUSALS]
    assert untested_limits(FolderSettings, FolderSettings.model_fields, rows) == []


@pytest.mark.parametrize(
    "command",
    [
        "curl -o answers.py https://example.org/answers",
        "curl -O https://example.org/setup.sh",
        "python -m get data.py",
        "python '' data.py",
        "bash -c 'curl -O https://example.org/setup.sh'",
        "fetch.sh",
        "python 'the script.py' data.py",
        "python3.13 ./deep/script.py",
    ],
)
def test_a_command_whose_script_is_there_prepares_a_folder(make_folder, command):
    folder = make_folder()
    (folder / "the script.py").touch()
    (folder / "deep").mkdir()
    (folder / "deep" / "script.py").touch()
    (folder / "problem.toml").write_text(f'prepare = "{command}"\n')
    assert read_settings(folder / "problem.toml").prepare == command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python 'missing.py'", "; missing.py is missing in .*tens$"),
        ("/usr/bin/python3 missing.py", "; missing.py is missing in .*tens$"),
        ("bash missing.sh x", "; missing.sh is missing in .*tens$"),
        ("./missing.sh", "; ./missing.sh is missing in .*tens$"),
        ("python 'x", r"; expected quotes that end \(No closing quotation\)$"),
        (" ", "; expected a command$"),
        ("python a.py | sh", "; expected a command without '|'"),
    ],
)
def test_a_command_that_cannot_prepare_a_folder_is_refused(make_folder, command, expected):
    folder = make_folder()
    (folder / "problem.toml").write_text(f'prepare = "{command}"\n')
    with pytest.raises(ValueError, match=expected):
        read_settings(folder / "problem.toml")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("name = ", "problem.toml is not valid TOML"),
        ("#" * 2**20, r"problem.toml: larger than 1,048,576 bytes, expected settings"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(make_folder, settings, expected):
    with pytest.raises(ValueError, match=expected):
        load_folder(make_folder(settings=settings))


@pytest.mark.parametrize("name", ["problem.md", "initial_program.py", "evaluator.py"])
def test_a_missing_or_empty_file_is_named(make_folder, name):
    folder = make_folder()
    (folder / name).write_text(" \n")
    with pytest.raises(ValueError, match=f"{name} is empty"):
        load_folder(folder)
    (folder / name).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=f"{name} is not UTF-8 text"):
        load_folder(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing in .*tens"):
        load_folder(folder)


ODD = {
    "link": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "device": lambda path: path.symlink_to("/dev/null"),
}


@pytest.mark.parametrize("name", ["problem.toml", "problem.md", "evaluator.py", "initial.cpp"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("link", "is a link to 'nowhere', which is not there"),
        ("loop", "is a link to '.*', which is not there"),
        ("pipe", "is a pipe"),
        ("folder", "is a folder"),
        ("device", "is a device"),
    ],
)
def test_what_is_there_in_place_of_a_file_is_named(make_folder, name, kind, said):
    folder = make_folder()
    if name == "initial.cpp":
        (folder / "initial_program.py").unlink()
        said = {"folder": "holds no file that fits", "device": "leads to /dev/null, outside"}.get(
            kind, said
        )
    (folder / name).unlink(missing_ok=True)
    ODD[kind](folder / name)
    with pytest.raises(ValueError, match=said):
        load_folder(folder)


def test_settings_with_another_name_by_case_are_refused(make_folder):
    folder = make_folder()
    (folder / "problem.toml").rename(folder / "Problem.toml")
    with pytest.raises(ValueError, match=r"Problem.toml: a problem folder's .* rename it$"):
        load_folder(folder)


def test_the_task_may_be_in_the_config_of_openevolve(make_folder):
    folder = make_folder()
    config = "llm: {}\nprompt:\n  system_message: |\n    Find another thing.\n"
    (folder / "config.yaml").write_text(config)
    assert load_folder(folder).task == "Return a number up to 10."
    (folder / "problem.md").unlink()
    assert load_folder(folder).task == "Find another thing.\n"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("prompt: {}", "config.yaml has no text at prompt.system_message"),
        ("prompt: [", "config.yaml is not valid YAML"),
    ],
)
def test_a_config_without_the_task_is_refused(make_folder, config, message):
    folder = make_folder()
    (folder / "problem.md").unlink()
    (folder / "config.yaml").write_text(config)
    with pytest.raises(ValueError, match=message):
        load_folder(folder)


def test_a_guide_reads_the_guide_blocks_of_an_evaluator_or_all_of_it(make_folder):
    assert load_folder(make_folder()).evaluator_source == NATIVE
    start, end = "# GUIDE-BLOCK-START\n", "# GUIDE-BLOCK-END\n"
    marked = f"import math\n\n{start}TOP = 10\n{end}\n\n{start}{NATIVE}\n\n{end}\n\nx = 1\n"
    assert load_folder(make_folder(marked)).evaluator_source == f"TOP = 10\n\n{NATIVE}"


IMPORTING = """from near import double, halve

# GUIDE-BLOCK-START
TOP = 10
# GUIDE-BLOCK-END
GUIDE_READS = (halve,)


def score(output):
    return double(halve(output)) / TOP
"""
NEAR = """def double(value):
    return 2 * value


def halve(value):
    return value / 2
"""


def test_a_guide_reads_imported_functions_that_an_evaluator_lists(make_folder):
    folder = make_folder(IMPORTING)
    (folder / "near.py").write_text(NEAR)
    shown = "TOP = 10\n\n\ndef halve(value):\n    return value / 2\n"
    assert load_folder(folder).evaluator_source == shown


@pytest.mark.parametrize("given", ["[score]", "score", "('score',)"])
def test_what_a_guide_reads_is_a_tuple_of_functions(make_folder, given):
    folder = make_folder(f"{NATIVE}GUIDE_READS = {given}\n")
    with pytest.raises(ValueError, match=r"GUIDE_READS is .*; expected a tuple of functions"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("evaluator", "metrics", "artifacts"),
    [
        (NATIVE, {"value": 5.0}, {"hint": "on"}),
        (SKYDISCOVER, {"value": 5.0}, {"hint": "go on", "stage": "None"}),
        (OPENEVOLVE, {}, {"stderr": "quiet"}),
    ],
    ids=["native", "skydiscover", "openevolve"],
)
def test_each_kind_of_evaluator_judges_the_candidate(make_folder, evaluator, metrics, artifacts):
    problem = load_folder(make_folder(evaluator, helper=RUN_PROGRAM))
    evaluation = check_problem(problem)
    assert evaluation.is_valid
    assert evaluation.score == evaluation.objective == 0.5
    found = {k: v for k, v in evaluation.metrics.items() if k != "eval_time"}
    assert (found, evaluation.artifacts) == ({"combined_score": 0.5, **metrics}, artifacts)
    assert problem.evaluate("def answer(): return 8").score == 0.8


def test_an_evaluator_may_read_the_files_beside_it(make_folder):
    evaluator = (
        "from pathlib import Path\ndef evaluate(program_path):\n"
        "    seed = Path(__file__).with_name('initial_program.py').read_text()\n"
        "    return {'combined_score': float(seed == Path(program_path).read_text())}"
    )
    problem = load_folder(make_folder(evaluator))
    assert check_problem(problem).score == 1.0
    assert problem.evaluate("x = 1").score == 0.0


@both
def test_numbers_of_any_kind_are_metrics_and_all_else_is_text(make_folder, kind):
    values = (
        "{'combined_score': np.float32(0.5), 'n': np.int64(3), 'q': Fraction(1, 4),"
        " 'zero_d': np.array(2.0), 'ok': True, 'rows': [1, 2], 'bad': float('nan'),"
        " 'points': np.zeros(2)}"
    )
    imports = "import numpy as np\nfrom fractions import Fraction\n"
    evaluation = check_problem(load_folder(make_folder(imports + returning(values, kind))))
    expected = {"combined_score": 0.5, "n": 3.0, "q": 0.25, "zero_d": 2.0, "ok": 1.0}
    assert {k: v for k, v in evaluation.metrics.items() if k != "eval_time"} == expected
    assert evaluation.artifacts == {"rows": "[1, 2]", "bad": "nan", "points": "[0. 0.]"}


@both
@pytest.mark.parametrize(
    ("settings", "objective", "score"),
    [
        ("", 0.5, 0.5),
        ("reference = 2.0", 0.5, 0.25),
        ("direction = 'minimize'\nreference = 0.25", 0.5, 0.5),
    ],
)
def test_reference_and_direction_make_the_score(make_folder, kind, settings, objective, score):
    evaluator = returning(f"{{'combined_score': {objective}}}", kind)
    evaluation = check_problem(load_folder(make_folder(evaluator, settings)))
    assert (evaluation.objective, evaluation.score) == (objective, score)


@both
@pytest.mark.parametrize(
    ("returned", "error"),
    [
        ("{'combined_score': 0.0, 'error': 'overlap'}", "overlap"),
        ("{'combined_score': 0.7, 'validity': 0}", "the evaluator says validity 0"),
        ("{'combined_score': 0.0, 'validity': -1, 'error': 'late'}", "late"),
        ("{'combined_score': -float('inf'), 'error': 'overlap'}", "overlap"),
        ("{'combined_score': float('nan'), 'failures': ['case 1']}", "case 1"),
        ("{'combined_score': None, 'error': 'late'}", "late"),
        ("{'combined_score': float('nan'), 'validity': 0}", "the evaluator says validity 0"),
        ("{'combined_score': float('nan')}", "combined_score is nan; expected a finite number"),
        ("{'combined_score': float('inf')}", "combined_score is inf; expected a finite number"),
    ],
)
def test_a_candidate_the_evaluator_rejects_scores_zero(make_folder, kind, returned, error):
    evaluation = load_folder(make_folder(returning(returned, kind))).evaluate(PROGRAM)
    assert (evaluation.score, evaluation.objective, evaluation.error) == (0.0, None, error)
    assert (EVALUATOR_FAULT in evaluation.artifacts) == error.endswith("finite number")


@pytest.mark.parametrize(
    "returned", ["0.5", "(0.5, {'text': 'far'})", "__import__('numpy').array(0.5)"]
)
def test_a_score_may_be_a_number(make_folder, returned):
    evaluation = check_problem(load_folder(make_folder(f"def score(o): return {returned}")))
    assert (evaluation.score, evaluation.is_valid) == (0.5, True)


@both
@pytest.mark.parametrize("objective", [0, -3])
def test_a_minimised_objective_that_is_not_positive_is_refused(make_folder, kind, objective):
    settings = 'direction = "minimize"\nreference = 0.25\n'
    evaluator = returning(f"{{'combined_score': {objective}}}", kind)
    with pytest.raises(ValueError, match=f"combined_score is {objective}; expected a positive"):
        check_problem(load_folder(make_folder(evaluator, settings)))


@both
def test_a_positive_score_with_an_error_is_valid(make_folder, kind):
    some = returning("{'combined_score': 0.7, 'error': 'one case of ten failed'}", kind)
    evaluation = check_problem(load_folder(make_folder(some)))
    assert (evaluation.score, evaluation.error) == (0.7, None)
    assert evaluation.artifacts["error"] == "one case of ten failed"


@both
@pytest.mark.parametrize(
    "said",
    [
        *("'errors': {}", "'failed': '0'", "'error': 'N/A'", "'failures': 'none'", "'error': []"),
        *("'errors': ()", "'exception': None", "'error': ' '", "'failures': float('nan')"),
    ],
)
def test_what_says_that_nothing_failed_is_no_error_of_a_low_score(make_folder, kind, said):
    evaluator = returning(f"{{'combined_score': -0.5, {said}}}", kind)
    evaluation = check_problem(load_folder(make_folder(evaluator)))
    assert (evaluation.score, evaluation.error) == (-0.5, None)


@both
def test_a_score_of_zero_without_an_error_is_valid(make_folder, kind):
    none = returning("{'combined_score': 0}", kind)
    assert check_problem(load_folder(make_folder(none))).is_valid


@both
def test_texts_of_an_evaluator_never_stand_for_those_of_the_search(make_folder, kind):
    names = (*UNSHOWN, LOG)
    answer = f"dict.fromkeys({names!r}, 'own') | {{'combined_score': 0.5}}"
    evaluator = f"def {kind}:\n    print('said')\n    return {answer}\n"
    program = "def answer():\n    print('said')\n    return 5\n"
    evaluation = check_problem(load_folder(make_folder(evaluator, program=program)))
    assert evaluation.is_valid
    own = {f"reported_{name}": "own" for name in names}
    assert evaluation.artifacts == {LOG: "said\n", **own}


FROM_EVALUATE = r"problem 'tens', initial program: evaluator.py(.|\n)*"
NAN = "initial program: combined_score is nan; expected a finite number"


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        (
            returning("{'hint': 'no Rscript ' + 'x' * 9000, 'mae': float('inf')}"),
            r"no combined_score; .*\(it returned hint, mae\)\nIts hint: no Rscript x{589}$",
        ),
        (returning("{}"), r"returned no combined_score; .*\(it returned nothing\)"),
        (returning("{'combined_score': 'high'}"), "combined_score is 'high'; expected a"),
        (returning("{'combined_score': None}"), "combined_score is 'None'; expected a"),
        *((returning("{'combined_score': float('nan')}", kind), NAN) for kind in KINDS),
        (returning("'0.5'"), FROM_EVALUATE + "evaluate returned str; expected a dict of metrics"),
        (
            returning("1 / 0"),
            FROM_EVALUATE + 'ZeroDivisionError: .*\n  File "evaluator.py", line 2',
        ),
        ("def evaluate(path): import absent", FROM_EVALUATE + "No module named 'absent'"),
        (
            "x = 1",
            FROM_EVALUATE
            + r"evaluator.py defines neither score\(output\) nor evaluate\(program_pa",
        ),
        (
            "import sys\ndef evaluate(path): sys.exit(2)",
            FROM_EVALUATE + r"SystemExit: the program called exit \(2\)",
        ),
        (
            "def score(o): return '0.5'",
            'score returned str; expected a number, a dict, such as {"combined_score": ',
        ),
        ("def score(o): return {'points': 1}", r"returned no combined_score; .*it returned points"),
        ("def score(o): return {'combined_score': 'high'}", "combined_score is 'high'; expected a"),
        ("def score(o):\n    return o['x']", r"TypeError: .* \(evaluator.py, line 2\)"),
        ("def score(o): return None", "score returned NoneType; expected .* or an Evaluation$"),
        (
            "def score(o): return {'combined_score': 10**400}",
            "initial program: score returned 'combined_score': a number too large for a float$",
        ),
        (
            "def score(o): return {'combined_score': 1, 'big': 10**400}",
            "initial program: score returned 'big': a number too large for a float$",
        ),
    ],
)
def test_a_broken_evaluator_is_found_before_the_search(make_folder, evaluator, expected):
    problem = load_folder(make_folder(evaluator))
    with pytest.raises(ValueError, match=expected):
        check_problem(problem)
    evaluation = problem.evaluate(PROGRAM)
    assert (evaluation.score, evaluation.is_valid) == (0.0, False)
    assert EVALUATOR_FAULT in evaluation.artifacts


@pytest.mark.parametrize("evaluator", [NATIVE, OPENEVOLVE])
@pytest.mark.parametrize(
    "program",
    [
        "def answer(): return 1 / 0",
        "x",
        "def answer(: return 1",
        "def answer(): import nowhere_at_all",
    ],
)
def test_an_initial_program_that_does_not_run_is_refused(make_folder, evaluator, program):
    problem = load_folder(make_folder(evaluator, program=program, helper=RUN_PROGRAM))
    with pytest.raises(ValueError, match="initial program: "):
        check_problem(problem)
    evaluation = problem.evaluate(program)
    assert NOT_SCORED in evaluation.artifacts
    assert EVALUATOR_FAULT not in evaluation.artifacts


def test_an_initial_program_that_raises_is_refused_with_its_own_traceback(make_folder):
    program = "def answer():\n    raise ValueError('not yet')"
    folder = make_folder(OPENEVOLVE, program=program, helper=RUN_PROGRAM)
    problem = load_folder(folder)
    evaluation = problem.evaluate(program)
    assert 'File "candidate.py", line 2, in answer' in evaluation.error
    assert str(folder) not in evaluation.error
    with pytest.raises(ValueError, match="initial program: ValueError: not yet"):
        check_problem(problem)


def test_an_evaluator_over_its_limit_is_stopped(make_folder):
    problem = load_folder(make_folder(SKYDISCOVER, "timeout = 0.4", helper=RUN_PROGRAM))
    evaluation = problem.evaluate("while True: pass")
    assert evaluation.error == (
        "timeout: the evaluation exceeded 0.4 s (timeout in problem.toml, or --timeout)"
    )


@pytest.mark.parametrize("evaluator", ["import helper\n" + NATIVE, SKYDISCOVER])
def test_nothing_is_written_into_the_folder(make_folder, evaluator):
    folder = make_folder(evaluator, helper=RUN_PROGRAM)
    before = sorted(folder.rglob("*"))
    check_problem(load_folder(folder))
    assert sorted(folder.rglob("*")) == before


def test_keys_in_the_environment_stay_out_of_the_evaluator(make_folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    evaluator = "import os\n" + returning("{'combined_score': 1, 'env': dict(os.environ)}")
    assert "CANARY" not in check_problem(load_folder(make_folder(evaluator))).artifacts["env"]


@pytest.mark.parametrize("pattern", ["*", "**", "**/*", "."])
def test_patterns_may_declare_all_files_that_may_be_shown(tmp_path, pattern):
    for name in ("evaluator.py", "data.txt", ".env"):
        (tmp_path / name).write_text("")
    assert {path.name for path in shown_files(tmp_path, [pattern])} == {"evaluator.py", "data.txt"}


@pytest.mark.parametrize("name", [".env", "../x", "/etc/passwd", "nothing.npy", "*/.key", "a**"])
def test_a_declared_file_that_cannot_be_shown_is_refused(make_folder, name):
    settings = f"files = ['helper.py', '{name}']"
    folder = make_folder(SKYDISCOVER, settings, helper=RUN_PROGRAM)
    (folder / ".env").write_text("x")
    with pytest.raises(ValueError, match=r"files has .*; expected files below the folder"):
        load_folder(folder)


def test_an_evaluator_that_misses_a_file_is_told_how_to_declare_it(make_folder):
    evaluator = "def evaluate(path):\n    return open(__file__[:-12] + chr(121)).read()"
    folder = make_folder(evaluator)
    (folder / "y").write_text("data")
    verdict = load_folder(folder).evaluate("")
    assert "Error: [Errno" in verdict.error
    assert verdict.error.endswith("declare others as files in problem.toml")


def test_a_score_may_return_an_evaluation_or_reject_by_a_value_error(make_folder):
    evaluator = (
        "from costada import Evaluation\ndef score(output):\n"
        "    if output > 10:\n        raise ValueError('above 10 by 2')\n"
        "    return Evaluation(score=0.25, objective=output, is_valid=True, metrics={'n': 2})\n"
    )
    problem = load_folder(make_folder(evaluator))
    evaluation = check_problem(problem)
    assert (evaluation.score, evaluation.objective, evaluation.metrics["n"]) == (0.25, 5.0, 2)
    assert problem.evaluate("def answer(): return 12.0\n").error == "above 10 by 2"


def test_arguments_are_what_the_entry_point_is_called_with(make_folder):
    evaluator = NATIVE + "import numpy as np\nARGUMENTS = {'x': np.arange(4.0), 'factor': 2}\n"
    problem = load_folder(make_folder(evaluator))
    assert problem.evaluate("def answer(x, factor): return factor * x.sum()\n").objective == 1.2


HELD_OUT = """
from costada import Holdout
CALLS = [{'x': 2}]
def score(results): return share(results, 2)
def share(results, x): return {'combined_score': float(results[0].output == x * x)}
HOLDOUT = Holdout(
    calls=lambda seed: [{'x': 5 + seed % 100}],
    score=lambda results, seed, published: share(results, 5 + seed % 100),
    margin=0.5,
)
"""


def test_a_folder_may_take_a_second_look(make_folder):
    problem = load_folder(make_folder(HELD_OUT))
    assert problem.evaluate_program(Program.of("def answer(x): return x * x"), "key").score == 1
    evaluation = problem.evaluate_program(Program.of("def answer(x): return 4"), "key")
    assert "scores 1 on the published inputs and 0 on others" in evaluation.error
    assert "~" not in problem.fingerprint
    other = load_folder(make_folder(HELD_OUT.replace("0.5", "0.4")))
    assert other.fingerprint != problem.fingerprint


def test_the_score_runs_here_and_the_candidate_elsewhere(make_folder):
    evaluator = (
        "import os\ndef score(output):\n"
        "    return {'combined_score': 1, 'judge': os.getpid(), 'candidate': output}\n"
    )
    program = "import os\ndef answer(): return os.getpid()\n"
    evaluation = load_folder(make_folder(evaluator)).evaluate(program)
    assert evaluation.metrics["judge"] == os.getpid() != evaluation.metrics["candidate"]


@pytest.mark.filterwarnings("ignore:sandbox")
def test_a_candidate_cannot_read_the_evaluator(make_folder):
    if chosen_layer(Layer.AUTO) is Layer.PROCESS:
        pytest.skip(f"nothing hides files from a process here: {how_to_install('bwrap')}")
    folder = make_folder()
    program = f"def answer(): return len(open({str(folder / 'evaluator.py')!r}).read())\n"
    evaluation = load_folder(folder).evaluate(program)
    assert "Error" in evaluation.error


def test_neighbours_can_be_imported_and_never_those_of_another_folder(make_folder):
    evaluator = "from rules import TOP\ndef score(output):\n    return {'combined_score': TOP}\n"
    first = load_folder(make_folder(evaluator, name="first", rules="TOP = 1"))
    second = load_folder(make_folder(evaluator, name="second", rules="TOP = 2"))
    assert [each.evaluate(PROGRAM).objective for each in (first, second)] == [1, 2]
    assert "rules" not in sys.modules
    assert not [path for path in sys.path if path.endswith("second")]


def test_a_neighbour_wins_over_a_module_of_the_same_name_and_gives_it_back(make_folder):
    import json

    evaluator = "import json\ndef score(output):\n    return {'combined_score': json.TOP}\n"
    assert load_folder(make_folder(evaluator, json="TOP = 3")).evaluate(PROGRAM).objective == 3
    assert sys.modules["json"] is json


def test_an_evaluator_may_define_dataclasses(make_folder):
    evaluator = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Rule:\n    top: float = 10.0\n"
        "def score(output):\n    return {'combined_score': output / Rule().top}\n"
    )
    assert check_problem(load_folder(make_folder(evaluator))).score == 0.5


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        ("x = 1\n1 / 0\n" + NATIVE, r"evaluator.py, line 2: ZeroDivisionError: division by zero"),
        ("import nowhere_at_all\n" + NATIVE, "evaluator.py, line 1: ModuleNotFoundError: No mod"),
        ("import rules\n" + NATIVE, r"rules.py, line 2: NameError: name 'y' is not defined"),
        ("import broken\n" + NATIVE, r"broken.py, line 1: SyntaxError: "),
        ("import sys\nsys.exit('no data')\n" + NATIVE, "line 2: SystemExit: no data"),
        ("x = 1\ndef score(output)", r"evaluator.py, line 2: SyntaxError: expected ':'$"),
        ("def evaluate(:", "evaluator.py, line 1: SyntaxError: invalid syntax$"),
        ("x = '\0'", "evaluator.py(: ValueError, expected Python|, line 1: SyntaxError: .* null)"),
        ("def score(): pass", r"score\(\) does not take one argument; expected score\(output\)"),
        ("def score(a, b): pass", r"score\(a, b\) does not take one argument; expected score\(out"),
        ("async def score(o): pass", "score is an async function; expected one that is called wit"),
        ("score = 3", "score is 3; expected a function$"),
        (NATIVE + "ARGUMENTS = {'x': {1}}", r"arguments\['x'\] is \{1\}; expected a number, text"),
        (NATIVE + "ARGUMENTS = [1]", r"arguments is \[1\]; expected a dict of keyword arguments"),
        (NATIVE + "CALLS = []", r"calls is \[\]; expected a list of at least one dict"),
        (NATIVE + "CALLS = [{}]\nARGUMENTS = {'x': 1}", "expected one of them"),
        (NATIVE + "HOLDOUT = 3", r"HOLDOUT is 3; expected a costada\.Holdout"),
    ],
)
def test_an_evaluator_that_cannot_work_is_refused_when_the_folder_is_read(
    make_folder, evaluator, expected
):
    folder = make_folder(evaluator, rules="x = 1\ny", broken="def f(:")
    with pytest.raises(ValueError, match=expected) as caught:
        load_folder(folder)
    assert str(folder) in str(caught.value)
    assert not [name for name in sys.modules if name in ("rules", "broken")]


def test_examples_beside_a_score_of_whole_programs_are_refused(make_folder):
    folder = make_folder(NATIVE, settings="examples = 'train.jsonl'")
    with pytest.raises(
        ValueError, match=r"examples is 'train.jsonl'; expected none beside score\("
    ):
        load_folder(folder)


@pytest.mark.parametrize("line", ["from rules import score", "score = lambda output: {}"])
def test_a_score_may_come_from_a_neighbour_or_an_assignment(make_folder, line):
    problem = load_folder(make_folder(line, rules=NATIVE))
    assert problem.score is not None


def test_an_evaluate_keeps_a_folder_whole_in_the_sandbox_whatever_else_it_defines(make_folder):
    evaluator = NATIVE + "def evaluate(program_path): return {'combined_score': 0.7}\n"
    problem = load_folder(make_folder(evaluator))
    assert problem.score is None
    assert check_problem(problem).score == 0.7
