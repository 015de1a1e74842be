"""An evaluator's module, loaded here as in its process, and what it starts."""

import sys
from contextlib import contextmanager

from costada.evaluators.sandbox.inside.foreign_code import load_module
from costada.evaluators.sandbox.inside.own_files import OwnFiles
from costada.evaluators.sandbox.inside.own_sources import OwnSources, Reached

NAME = "evaluator_that_is_read"


@contextmanager
def loaded(folder, source, judge, *others):
    """An evaluator's module, whose `Popen(*words)` returns `judge(words, reached)`."""
    path = folder / "evaluator.py"
    path.write_text(source)
    files = OwnFiles(str(folder), str(path), [str(path), *(str(folder / each) for each in others)])
    sources = OwnSources(files)
    try:
        module = load_module(NAME, str(path))
        module.Popen = lambda *words: judge(words, Reached(sources, sys._getframe()))
        yield module
    finally:
        del sys.modules[NAME]
