"""What the next prompt holds of an evaluator's answer, for each contract and tool.

Each problem starts from a program that is valid, which the first prompt shows. The model answers
with one that fails, which the second prompt, of the retry, shows.
"""

import json
from dataclasses import dataclass, field

import pytest
from peer_scripts import LOAD, MAIN
from toy_graph import discovery, scripted

from costada.evaluators.folders import load_folder

pytestmark = pytest.mark.process

VALID = "import sys\ndef answer():\n    print('warns', file=sys.stderr)\n    return 0.5\n"
FAILING = "import sys\ndef answer():\n    print('breaks', file=sys.stderr)\n    return -1\n"


@dataclass(frozen=True)
class Contract:
    """A folder, and what the prompts after its valid and its failing program hold, in order."""

    evaluator: str
    valid: tuple[str, ...]
    failing: tuple[str, ...]
    settings: str = ""
    others: dict[str, str] = field(default_factory=dict)
    name: str = "evaluator.py"


CONTRACTS = {
    "EvaluationResult of OpenEvolve": Contract(
        "from openevolve.evaluation_result import EvaluationResult\n"
        "def evaluate(program_path):\n"
        "    value = load(program_path).answer()\n"
        "    metrics = {'combined_score': max(value, 0.0), 'tiny': 2e-7, 'validity': value > 0}\n"
        "    artifacts = {'stderr': f'got {value}', 'suggestion': 'go up', 'feedback': 'higher'}\n"
        "    return EvaluationResult(metrics=metrics, artifacts=artifacts)\n",
        (
            "- tiny: 2e-07\n",
            "`stderr`",
            "got 0.5",
            "`suggestion`",
            "go up",
            "`log`",
            "warns",
            "Evaluator feedback",
            "higher",
        ),
        (
            "the evaluator says validity 0",
            "`feedback`",
            "higher",
            "- tiny: 2e-07\n",
            "`stderr`",
            "got -1",
            "`suggestion`",
            "`log`",
            "breaks",
        ),
    ),
    "a stage whose threshold is not reached": Contract(
        "from openevolve.evaluation_result import EvaluationResult\n"
        "def evaluate(program_path): pass\n"
        "def evaluate_stage1(program_path):\n"
        "    value = load(program_path).answer()\n"
        "    artifacts = {'first': f'saw {value}'} | ({'error': 'negative'} if value < 0 else {})\n"
        "    return EvaluationResult({'combined_score': max(value, 0), 'n': 3}, artifacts)\n"
        "def evaluate_stage2(program_path):\n"
        "    return EvaluationResult({'combined_score': 9.0}, {'second': 'reached'})\n",
        ("Score: 9.0000", "- n: 3.0000", "`first`", "saw 0.5", "`second`", "reached"),
        ("negative", "- n: 3.0000", "`first`", "saw -1"),
        others={"config.yaml": "evaluator: {cascade_thresholds: [0.4]}\n"},
    ),
    "a later stage that raises": Contract(
        "def evaluate(program_path): pass\n"
        "def evaluate_stage1(program_path):\n"
        "    value = load(program_path).answer()\n"
        "    if value < 0: raise RuntimeError('negative')\n"
        "    return {'combined_score': value, 'n': 3}\n"
        "def evaluate_stage2(program_path): raise KeyError('late')\n",
        ("Score: 0.5000", "- n: 3.0000", "- stage2_passed: 0.0000", "`stage2_error`", "late"),
        ("RuntimeError: negative", "`log`", "breaks"),
        others={"config.yaml": "evaluator: {cascade_thresholds: [0.4]}\n"},
    ),
    "metrics.json and correct.json of ShinkaEvolve": Contract(
        "import json, os\n"
        "def main(program_path, results_dir):\n"
        "    value = load(program_path).answer()\n"
        "    metrics = {'combined_score': value, 'public': {'gap': 1 - value},\n"
        "               'private': {'secret': 7}, 'text_feedback': ['go', 'on']}\n"
        "    correct = {'correct': value > 0, 'error': '' if value > 0 else 'too low'}\n"
        "    for name, content in (('metrics', metrics), ('correct', correct)):\n"
        "        with open(os.path.join(results_dir, name + '.json'), 'w') as file:\n"
        "            json.dump(content, file)\n" + MAIN,
        ("- gap: 0.5000", "Evaluator feedback", "go\non"),
        ("too low", "`feedback`", "go\non", "- gap: 2.0000", "`log`", "breaks"),
        name="evaluate.py",
    ),
    "side information of GEPA": Contract(
        "def evaluate(program_path):\n"
        "    value = load(program_path).answer()\n"
        "    info = {'scores': {'speed': 3}, 'Feedback': 'go up', 'cases': {'a': [1, 2]}}\n"
        "    return max(value, 0), info | ({'error': 'below 0'} if value < 0 else {})\n",
        ("Score: 0.5000", "- speed: 3.0000", "`Feedback`", "go up", '{"a": [1, 2]}', "warns"),
        ("below 0", "- speed: 3.0000", "`Feedback`", "go up", '{"a": [1, 2]}', "breaks"),
    ),
    "score(output) with side information": Contract(
        "import costada\n"
        "def score(output):\n"
        "    costada.log('saw', output)\n"
        "    if output < 0: raise ValueError(f'{output} is below 0')\n"
        "    return output, {'half': output / 2, 'hints': ['go', 'up']}\n",
        (
            "Score: 0.5000",
            "- half: 0.2500",
            "`hints`",
            "go\nup",
            "`log`",
            "warns",
            "Evaluator feedback",
            "saw 0.5",
        ),
        ("-1 is below 0", "`feedback`", "saw -1", "`log`", "breaks"),
        settings='entry_point = "answer"\n',
    ),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("problems") / "given"


def follows_in_order(parts, text):
    """Check that a text holds all parts, one after the other."""
    for part in parts:
        _, found, text = text.partition(part)
        assert found, (part, text)


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)
def test_all_that_an_evaluator_says_is_in_the_next_prompt(place, contract):
    place.mkdir(exist_ok=True)
    for path in place.iterdir():
        path.unlink()
    files = {contract.name: LOAD + contract.evaluator, "initial_program.py": VALID}
    files |= {"problem.md": "Answer.", "problem.toml": contract.settings, **contract.others}
    for name, text in files.items():
        (place / name).write_text(text)
    model = scripted(lambda prompt: f"Lower.\n\n```python\n{FAILING}```\n")
    discovery(model, problem=load_folder(place), iterations=1, attempts=2).invoke({})
    first, second = model.prompts
    follows_in_order(contract.valid, first.split("# Current program\n")[1])
    retry = second.split("## Failed attempt\n")[1]
    follows_in_order(contract.failing, retry)
    assert "secret" not in first + second
    assert json.dumps("reached") not in retry
