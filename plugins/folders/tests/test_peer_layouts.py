"""Problem folders in the layouts of other tools, and their configurations."""

import pytest

from costada.evaluators.folder_files import shown_files
from costada.evaluators.folder_layout import problems_below
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem
from costada.evaluators.sandbox.limits import Limits

EVALUATE = """
from pathlib import Path
def evaluate(program_path):
    return {"combined_score": float(len(Path(program_path).read_text())), "name": program_path}
"""
STAGES = EVALUATE + (
    "def evaluate_stage1(program_path): return {'combined_score': 0.9}\n"
    "def evaluate_stage2(program_path): return {'combined_score': 0.8}\n"
    "def evaluate_stage3(program_path): return {'combined_score': 0.7}\n"
)
CONFIG = """
max_iterations: 100
llm: {primary_model: some-model, temperature: 0.7}
prompt: {system_message: "Write x.", num_top_programs: 3}
evaluator: {timeout: 7, parallel_evaluations: 3, cascade_evaluation: false, max_retries: 3}
"""
LEGACY_FILES = {"evaluator.py": EVALUATE, "initial_program.py": "x = 1", "config.yaml": CONFIG}


@pytest.fixture
def write(tmp_path):
    """Write files below a problem folder, and return that."""

    def write(files, name="given"):
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / name

    return write


@pytest.mark.process
@pytest.mark.parametrize(
    ("evaluator", "program"),
    [
        ("evaluator.py", "initial_program.py"),
        ("evaluate.py", "init_program.py"),
        ("evaluator/evaluator.py", "initial.py"),
    ],
)
def test_evaluators_and_programs_are_found_under_the_names_of_all_tools(write, evaluator, program):
    folder = write({evaluator: EVALUATE, program: "x = 12", "problem.md": "Write x."})
    problem = load_folder(folder)
    assert (problem.task, problem.initial_program) == ("Write x.", "x = 12")
    assert check_problem(problem).score == len("x = 12")


@pytest.mark.process
def test_an_evaluator_in_a_folder_of_its_own_sees_its_neighbours_and_nothing_hidden(write):
    evaluator = (
        "import json, os\nfrom helper import weigh\nHERE = os.path.dirname(__file__)\n"
        "def evaluate(program_path):\n"
        "    names = sorted(os.listdir(HERE))\n"
        "    score = weigh(json.load(open(os.path.join(HERE, 'da' + 'ta.json'))))\n"
        "    return {'combined_score': score, 'names': names}\n"
    )
    folder = write(
        {
            "evaluator/evaluator.py": evaluator,
            "evaluator/helper.py": "def weigh(values): return sum(values)\n",
            "evaluator/data.json": "[1, 2, 4]",
            "evaluator/.env": "KEY=CANARY",
            "initial_program.py": "x = 1",
            "problem.md": "Write x.",
        }
    )
    assert check_problem(load_folder(folder)).score == 7.0


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "ending", "language"),
    [
        ("initial_program.rs", ".rs", "Rust"),
        ("initial.sv", ".sv", "Verilog"),
        ("initial_prompt.txt", ".txt", "text"),
        ("initial_program.py", ".py", "Python"),
    ],
)
def test_an_evaluator_gets_a_file_with_the_ending_of_the_start(write, name, ending, language):
    problem = load_folder(write({"evaluator.py": EVALUATE, name: "a b", "problem.md": "Write."}))
    evaluation = check_problem(problem)
    assert evaluation.score == 3.0
    assert evaluation.artifacts["name"].endswith(ending)
    assert problem.language == language


def test_the_language_of_the_configuration_counts_where_the_ending_says_none(write):
    files = {"evaluator.py": EVALUATE, "initial_program.txt": "x <- 1"}
    folder = write({**files, "config.yaml": "language: r\nprompt: {system_message: Write R.}\n"})
    assert load_folder(folder).language == "R"
    assert load_folder(folder).notes == ("config.yaml: took over language, prompt.system_message",)


def test_a_long_list_of_settings_that_are_not_taken_over_is_shortened(write):
    config = CONFIG + "".join(f"setting_{number}: 1\n" for number in range(11))
    note = load_folder(write({**LEGACY_FILES, "config.yaml": config})).notes[0]
    assert note.endswith("setting_7 and 3 more")


@pytest.mark.process
def test_stages_without_evaluate_or_a_configuration_have_the_usual_thresholds(write):
    stages = (
        "def evaluate_stage1(path): return {'combined_score': 0.6}\n"
        "def evaluate_stage2(path): return {'combined_score': 0.7}\n"
        "def evaluate_stage3(path): return {'combined_score': 0.9}\n"
    )
    folder = write({"evaluator.py": stages, "initial.py": "x = 1", "problem.md": "Write x."})
    assert check_problem(load_folder(folder)).score == 0.7


def test_what_is_missing_is_named_with_the_other_names_that_it_may_have(write):
    folder = write({"notes.txt": ""})
    with pytest.raises(ValueError, match=r"evaluate\.py or evaluator/eval.*costada init"):
        load_folder(folder)
    write({"evaluator.py": EVALUATE})
    with pytest.raises(ValueError, match=r"init_program\.\*, initial\.\*.*costada init"):
        load_folder(folder)
    write({"initial.py": "x = 1"})
    with pytest.raises(ValueError, match=r"system_message in config.yaml, or README.*costada in"):
        load_folder(folder)


def test_a_configuration_is_taken_over_as_far_as_it_concerns_evaluations(write):
    problem = load_folder(write(LEGACY_FILES))
    assert problem.task == "Write x."
    assert problem.limits == Limits(wall_seconds=7.0, processes=256)
    assert problem.evaluations_at_once == 3
    assert problem.notes == (
        "config.yaml: took over evaluator.cascade_evaluation, evaluator.parallel_evaluations,"
        " evaluator.timeout, prompt.system_message; not: max_iterations, llm,"
        " prompt.num_top_programs, evaluator.max_retries",
    )


def test_settings_and_a_task_of_ones_own_count_more_than_a_configuration(write):
    files = {**LEGACY_FILES, "problem.toml": "timeout = 2", "problem.md": "Write y."}
    problem = load_folder(write(files))
    assert (problem.task, problem.limits.wall_seconds) == ("Write y.", 2.0)


def test_a_stage_that_no_threshold_leads_to_is_named(write):
    config = "prompt: {system_message: x}\nevaluator: {cascade_thresholds: [0.9]}"
    problem = load_folder(write({**LEGACY_FILES, "evaluator.py": STAGES, "config.yaml": config}))
    expected = "evaluate_stage3 is never reached: evaluator.cascade_thresholds are [0.9]"
    assert expected in problem.notes


def test_a_stage_that_is_missing_before_another_is_named(write):
    stages = STAGES.replace("evaluate_stage2", "other")
    config = "prompt: {system_message: x}\nevaluator: {cascade_thresholds: [0.5, 0.9]}"
    problem = load_folder(write({**LEGACY_FILES, "evaluator.py": stages, "config.yaml": config}))
    assert "evaluate_stage3 is never reached: evaluate_stage2 is missing" in problem.notes


def test_each_stage_has_the_time_of_the_configuration(write):
    config = "prompt: {system_message: x}\nevaluator: {timeout: 5, cascade_thresholds: [0.5, 0.5]}"
    problem = load_folder(write({**LEGACY_FILES, "evaluator.py": STAGES, "config.yaml": config}))
    assert (problem.limits.wall_seconds, problem.limits.call_seconds) == (15.0, 5.0)


def test_a_configuration_of_another_name_is_read_and_the_choice_is_named(write):
    files = {name: text for name, text in LEGACY_FILES.items() if name != "config.yaml"}
    phases = {f"config_phase_{n}.yaml": f"prompt: {{system_message: Phase {n}.}}\n" for n in (1, 2)}
    folder = write({**files, **phases})
    problem = load_folder(folder)
    assert problem.task == "Phase 1."
    assert problem.notes[1] == (
        "config_phase_1.yaml was read and not config_phase_2.yaml: config = NAME in problem.toml"
    )
    write({"problem.toml": 'config = "config_phase_2.yaml"'})
    assert load_folder(folder).task == "Phase 2."


def test_one_of_several_tasks_must_be_chosen(write):
    files = {name: text for name, text in LEGACY_FILES.items() if name != "config.yaml"}
    tasks = {f"configs/{name}.yaml": f"prompt: {{system_message: {name}}}" for name in "ab"}
    folder = write({**files, **tasks})
    with pytest.raises(ValueError, match=r"several configurations \(configs/a.yaml, configs/b"):
        load_folder(folder)
    write({"problem.toml": 'config = "configs/b.yaml"'})
    assert load_folder(folder).task == "b"


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("evaluator: {timeout: soon}", "evaluator.timeout is 'soon'; expected a positive number"),
        ("evaluator: {timeout: .inf}", "evaluator.timeout is inf; expected a positive number"),
        ("evaluator: {cascade_thresholds: 1}", "cascade_thresholds is 1; expected a list of num"),
        ("evaluator: {cascade_evaluation: 2}", "cascade_evaluation is 2; expected true or false"),
        ("parallel_evaluations: 0", "parallel_evaluations is 0; expected an integer of at"),
        ("language: 3", "language is 3; expected a string"),
        ("database: {feature_dimensions: [1]}", r"dimensions is \[1\]; expected a list of names"),
        ("- a", "config.yaml holds a list; expected keys with values"),
        ("a: [", "config.yaml is not valid YAML"),
        (
            "max_iterations: 3",
            r"^problem.md is missing in .*, and config.yaml has no text at",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused(write, config, fault):
    folder = write({**LEGACY_FILES, "config.yaml": config})
    with pytest.raises(ValueError, match=fault):
        load_folder(folder)


@pytest.mark.parametrize("name", ["../config.yaml", "nothing.yaml"])
def test_a_configuration_elsewhere_or_nowhere_is_refused(write, name):
    folder = write({**LEGACY_FILES, "problem.toml": f'config = "{name}"'})
    write({"config.yaml": CONFIG}, name=".")
    with pytest.raises(ValueError, match=f"config is '{name}'; expected a file in"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("files", "task"),
    [
        ({"config.yaml": "llm: {system_message: Of the model.}"}, "Of the model."),
        ({"shinka.yaml": "evo_config: {task_sys_msg: Of evo.}"}, "Of evo."),
        ({"run_evo.py": "import nothing\nsearch_task_sys_msg = 'Of a runner.'\n"}, "Of a runner."),
        ({"run_evo.py": "run(task_sys_msg='Of a call.')\n"}, "Of a call."),
        ({"README.md": "Of the README."}, "Of the README."),
        ({"run_evo.py": "task_sys_msg = text()", "README.md": "Of last."}, "Of last."),
    ],
)
def test_the_task_is_found_where_other_tools_keep_it(write, files, task):
    folder = write({"evaluator.py": EVALUATE, "initial.py": "x = 1", **files})
    assert load_folder(folder).task == task


def test_a_folder_of_several_problems_names_them_and_one_is_taken_by_its_path(write):
    paths = ["packing/evaluator.py", "disks/11/evaluator/evaluator.py", "disks/12/evaluate.py"]
    parts = {"initial_program.py": "x = 1", "problem.md": "Write x."}
    folders = ["packing", "disks/11", "disks/12"]
    parent = write(
        dict.fromkeys(paths, EVALUATE)
        | {f"{each}/{name}": text for each in folders for name, text in parts.items()}
        | {".hidden/evaluator.py": EVALUATE, "notes/a.txt": ""}
    )
    expected = (
        r"holds 3 problems \(disks/11, disks/12, packing\); expected the path of one, such as"
    )
    with pytest.raises(ValueError, match=expected):
        load_folder(parent)
    assert [path.name for path in problems_below(parent)] == ["11", "12", "packing"]
    assert load_folder(parent / "disks" / "11").name == "11"


@pytest.mark.process
def test_helpers_one_folder_up_are_seen_and_their_neighbours_are_not(write):
    evaluator = (
        "import os, sys\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
        "ABOVE = os.path.dirname(HERE)\n"
        "if ABOVE not in sys.path:\n    sys.path.insert(0, ABOVE)\n"
        "from shared_rules import weigh\n"
        "def evaluate(program_path):\n"
        "    others = sorted(os.listdir(ABOVE))\n"
        "    try: secret = open(os.path.join(ABOVE, 'notes.txt')).read()\n"
        "    except OSError: secret = 'hidden'\n"
        "    try: import linked; secret = 'linked'\n"
        "    except (ImportError, PermissionError): pass\n"
        "    return {'combined_score': weigh(3), 'secret': secret}\n"
    )
    parent = write(
        {
            "shared_rules.py": "import more_rules\ndef weigh(x): return x * more_rules.FACTOR\n",
            "more_rules.py": "FACTOR = 5\n",
            "notes.txt": "CANARY",
            ".env": "CANARY = 1",
            "one/evaluator.py": evaluator,
            "one/initial_program.py": "x = 1",
            "one/problem.md": "Write x.",
        }
    )
    (parent / "linked.py").symlink_to(parent / ".env")
    problem = load_folder(parent / "one")
    evaluation = check_problem(problem)
    assert (evaluation.score, evaluation.artifacts["secret"]) == (15.0, "hidden")
    (parent / "more_rules.py").write_text("FACTOR = 7\n")
    assert load_folder(parent / "one").fingerprint != problem.fingerprint


@pytest.mark.process
def test_a_configuration_beside_a_score_of_ones_own_is_none_of_ours(write):
    files = {
        "evaluator.py": "def score(output): return {'combined_score': output}",
        "initial_program.py": "def answer(): return 2.5",
        "problem.toml": 'entry_point = "answer"',
        "config.yaml": "- unrelated",
    }
    problem = load_folder(write({**files, "problem.md": "Answer."}))
    assert (problem.notes, check_problem(problem).score) == ((), 2.5)


@pytest.mark.process
def test_an_evaluator_gets_the_folder_of_a_program_of_several_files(write):
    evaluator = (
        "from pathlib import Path\n"
        "def evaluate(program_path):\n"
        "    texts = {p.name: p.read_text() for p in Path(program_path).rglob('*.*')}\n"
        "    return {'combined_score': sum(map(len, texts.values())), 'names': sorted(texts)}\n"
    )
    parts = {"initial_program/a.py": "x = 1", "initial_program/include/b.hpp": "int b;"}
    problem = load_folder(write({"evaluator.py": evaluator, "problem.md": "Write.", **parts}))
    evaluation = check_problem(problem)
    assert (evaluation.score, evaluation.artifacts["names"]) == (11.0, "a.py\nb.hpp")
    assert dict(problem.start) == {"a.py": "x = 1", "include/b.hpp": "int b;"}


def test_relative_imports_lead_to_nothing_outside_of_the_folder(write):
    dots = "." * 60
    evaluator = f"from .. import notes\nfrom {dots} import notes\nfrom .lib import notes\n"
    parent = write({"notes.py": "", "one/evaluator.py": evaluator, "one/lib/notes.py": ""})
    shown = {str(path.relative_to(parent)) for path in shown_files(parent / "one")}
    assert shown == {"one/evaluator.py", "one/lib/notes.py"}
