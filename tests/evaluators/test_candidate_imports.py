"""Which sources of an evaluator count as running the candidate in its own process."""

import pytest

from costada.evaluators.candidate_imports import may_import_candidate

COPYING = "import shutil\ndef evaluate(path):\n    shutil.copy(path, COPY)\n    import solution\n"


@pytest.mark.parametrize(
    "source",
    [
        "import ctypes\ndef evaluate(path): ctypes.CDLL(path)",
        "import numpy\ndef evaluate(path): numpy.load(path, allow_pickle=True)",
        "import os, sys\ndef evaluate(path):\n    sys.path.append(os.path.dirname(path))\n"
        "    import evaluator",
        "import runpy\ndef evaluate(path): runpy.run_path(path)",
        "def evaluate(path): exec(open(path).read())",
        "from importlib import util\nfrom importlib.util import spec_from_file_location as load\n"
        "def evaluate(path): load('x', path)",
        "def evaluate(path:",
        "import yaml\ndef evaluate(path): yaml.load(open(path), Loader=yaml.Loader)",
        "import yaml as y\ndef evaluate(path): y.load_all(open(path), y.FullLoader)",
        "from yaml import load\ndef evaluate(path): load(open(path))",
        "import yaml\nclass MySafeLoader(yaml.Loader): pass\n"
        "def evaluate(path): yaml.load(open(path), Loader=MySafeLoader)",
        "import yaml\ndef evaluate(path): yaml.unsafe_load(open(path))",
        "import yaml\nload = yaml.load\ndef evaluate(path): load(open(path))",
        "import torch\ndef evaluate(path): torch.load(path)",
        "import torch\ndef evaluate(path): torch.load(path, weights_only=path)",
        "import torch.serialization\ndef evaluate(path): torch.serialization.load(path)",
        "from torch import load as read\ndef evaluate(path): read(path, map_location='cpu')",
        "from joblib import load\ndef evaluate(path): load(path)",
        "import cloudpickle\ndef evaluate(path): cloudpickle.load(open(path, 'rb'))",
        "import timeit\ndef evaluate(path): timeit.timeit(open(path).read())",
        "from timeit import repeat\ndef evaluate(path): repeat('run()', setup=open(path).read())",
        "import timeit\ndef evaluate(path): timeit.Timer(**settings(path))",
        "import timeit\ntimed = timeit.timeit\ndef evaluate(path): timed(open(path).read())",
        "import timeit\ndef evaluate(path): timeit.timeit(run_once)",
        "import timeit\ndef run(): pass\ndef timed(run): timeit.timeit(run)",
        "import timeit\ndef run(): pass\nrun = open(FILE).read()\ntimeit.timeit(run, number=5)",
        "import cProfile\ndef evaluate(path): cProfile.run(open(path).read())",
        "import runpy\ndef evaluate(path): getattr(runpy, 'run_' + 'path')(path)",
        "import builtins as b\ndef evaluate(path): b.eval(open(path).read())",
        "def evaluate(path): return eval(open(path).read())",
        "def evaluate(path): return map(eval, open(path))",
        "def evaluate(path): compile(open(path).read(), path, 'exec')",
        "import sympy\ndef evaluate(path): sympy.sympify(open(path).read())",
        "from sympy.parsing.sympy_parser import parse_expr\n"
        "def evaluate(path): parse_expr(open(path).read())",
        "from sympy import *\ndef evaluate(path): lambdify(symbols('x'), open(path).read())",
        "import jinja2\ndef evaluate(path): jinja2.Template(open(path).read()).render()",
        "from jinja2 import Environment\nENV = Environment()\n"
        "def evaluate(path): ENV.from_string(source=open(path).read()).render()",
        "import jinja2\nTEXT = 'x'\ndef evaluate(path):\n    TEXT = open(path).read()\n"
        "    return jinja2.Template(TEXT)",
        "from mako.template import Template\ndef evaluate(path): Template(open(path).read())",
        "import numpy as np\ndef evaluate(path): np.load(path, None, True)",
        "from numpy import load\ndef evaluate(path): load(*options(path))",
        "import pandas as pd\ndef evaluate(path): pd.DataFrame().query(open(path).read())",
        "import pandas\ndef evaluate(path): pandas.DataFrame().eval(f'a + {open(path).read()}')",
        "import pandas\ndef evaluate(path): pandas.eval(expr=open(path).read())",
        "import numexpr\ndef evaluate(path): numexpr.evaluate(open(path).read())",
        "from tensorflow import keras\ndef evaluate(path): keras.models.load_model('m.h5')",
        "import tensorflow as tf\ndef evaluate(path): tf.keras.models.load_model('m.h5')",
        "import logging.config\ndef evaluate(path): logging.config.fileConfig(path)",
        "import torch\ndef evaluate(path): torch.jit.load('m.pt')",
        COPYING.replace("COPY", "'solution.py'"),
        COPYING.replace("COPY", "f'{HERE}/solution.py'"),
        COPYING.replace("COPY", "'solution/__init__.py'"),
    ],
)
def test_importing_by_a_path_and_loading_data_that_is_code_count(source):
    assert may_import_candidate([source])


@pytest.mark.parametrize(
    "source",
    [
        "import yaml\ndef evaluate(path): yaml.load(open(path), Loader=yaml.SafeLoader)",
        "from yaml import CSafeLoader, load\ndef evaluate(path): load(open(path), CSafeLoader)",
        "import yaml\ndef evaluate(path): yaml.safe_load(open(path))",
        "import torch\ndef evaluate(path): torch.load(path, weights_only=True)",
        "import json, torch\ndef evaluate(path): json.load(open(path))",
        "import numpy\ndef evaluate(path): numpy.load(path)",
        "CODE = 'import runpy'",
        "import timeit\ndef evaluate(path): timeit.timeit(lambda: run([path]), number=3)",
        "import timeit\ndef evaluate(path): timeit.timeit('work()', setup='work = len')",
        "import timeit\ndef run(): pass\ndef evaluate(path): timeit.timeit(run, number=5)",
        "from timeit import default_timer\ndef evaluate(path): default_timer()",
        "import re\nLINE = re.compile('a')",
        "from re import compile\nLINE = compile('a')",
        "import torch\ndef evaluate(path): return torch.compile(model_of(path))",
        "def evaluate(path): return model_of(path).eval()",
        "def evaluate(path):\n    eval = model_of(path)\n    return eval(1)",
        "import numpy as np\ndef evaluate(path): np.load(path, None, False)",
        "import numpy as np\ndef evaluate(path): np.load(path, 'r')",
        "import pandas as pd\ndef evaluate(path): pd.read_csv(path).query('a > 1').eval('a')",
        "def evaluate(path): return database.query(open(path).read())",
        "import jinja2\ndef evaluate(path): jinja2.Template('{{ x }}').render(x=open(path).read())",
        "import jinja2\nTEXT = '{{ x }}'\ndef evaluate(path): jinja2.Template(TEXT).render(x=path)",
        "import numexpr\ndef evaluate(path): numexpr.evaluate('a + 1', {'a': path})",
        COPYING.replace("COPY", "'solution.txt'"),
        COPYING.replace("COPY", "f'{name}.py'"),
    ],
)
def test_loading_plain_data_and_importing_what_is_not_written_do_not(source):
    assert not may_import_candidate([source])


def test_a_module_that_one_file_writes_may_be_imported_by_another():
    assert may_import_candidate(["COPY = 'helpers/solution.py'", "from helpers import solution"])


def test_a_timer_may_be_given_a_function_of_another_file():
    timing = "import timeit\nfrom helpers import run\ndef evaluate(path): timeit.timeit(run)"
    assert not may_import_candidate([timing, "def run(): pass"])
    assert may_import_candidate([timing, "run = open('code.txt').read()"])
