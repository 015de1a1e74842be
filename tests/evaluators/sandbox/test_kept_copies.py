"""Copies that one candidate after the other gets where nothing can be mounted."""

import json
import os
from tempfile import gettempdir

import pytest
from made_repositories import make_repository
from sandbox_runs import HERE, LAYERS, WITHOUT_NAMESPACES, output_of, why_absent

from costada.evaluators.sandbox.inside.file_copies import SHARED_MEMORY
from costada.evaluators.sandbox.inside.kept_copy import LOCAL_FILE_SYSTEMS
from costada.evaluators.sandbox.inside.kernel import file_system
from costada.evaluators.sandbox.layers import Layer

pytestmark = pytest.mark.process

FILES = {
    "bench.py": "from solver import answer\n\nanswer()\nprint(1)\n",
    "src/solver.py": "",
    "src/beside.txt": "x\n",
    "data/numbers.txt": "1 2 3\n",
    "data/other.txt": "4 5 6\n",
    "data/deep/still.txt": "still\n",
    "data/deep/more/leaf.txt": "leaf\n",
    "empty/.keep": "",
}
CHANGES = {
    "edits": "open('data/numbers.txt', 'r+').write('9')",
    "edits and resets the time": """
about = os.stat('data/numbers.txt')
open('data/numbers.txt', 'r+').write('9')
os.utime('data/numbers.txt', ns=(about.st_atime_ns, about.st_mtime_ns))
""",
    "edits at once": """
fd = os.open('data/numbers.txt', os.O_RDWR)
for _ in range(1000):
    os.pwrite(fd, b'9', 0)
""",
    "edits through a mapping that it has read": """
with open('data/numbers.txt', 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapped:
    assert mapped[0] == ord('1')
    mapped[0] = ord('9')
""",
    "truncates": "open('data/numbers.txt', 'w')",
    "deletes": "os.unlink('data/deep/more/leaf.txt')",
    "deletes a folder": "shutil.rmtree('data/deep')",
    "deletes all": """
for name in os.listdir('.'):
    shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
""",
    "adds": """
os.makedirs('data/new/newer')
for place in ('.', '..', 'data', 'data/new/newer', os.environ['HOME'], 'empty'):
    open(f'{place}/added', 'w').write('new')
""",
    "adds what cannot be entered": """
os.makedirs('data/new/newer')
os.chmod('data/new', 0)
""",
    "links": """
os.link('data/numbers.txt', 'data/hard')
os.symlink('/', 'data/soft')
""",
    "edits through a hard link that is gone": """
os.link('data/numbers.txt', 'data/hard')
open('data/hard', 'r+').write('9')
os.unlink('data/hard')
""",
    "puts a link in the place of a file": """
os.rename('data/numbers.txt', 'data/moved')
os.symlink('moved', 'data/numbers.txt')
""",
    "puts a link in the place of a folder": """
os.rename('data', 'moved')
os.symlink('moved', 'data')
""",
    "puts a folder in the place of a file": """
os.unlink('data/numbers.txt')
os.makedirs('data/numbers.txt/in')
""",
    "puts a file in the place of a folder": """
shutil.rmtree('data')
open('data', 'w').write('no folder')
""",
    "swaps files": """
os.rename('data/numbers.txt', 'data/x')
os.rename('data/other.txt', 'data/numbers.txt')
os.rename('data/x', 'data/other.txt')
""",
    "swaps folders": """
os.rename('data', 'x')
os.rename('src', 'data')
os.rename('x', 'src')
""",
    "moves the repository": """
here = os.getcwd()
os.rename(here, os.path.join(os.path.dirname(here), 'moved'))
os.mkdir(here)
""",
    "changes modes": """
os.chmod('data/numbers.txt', 0)
os.chmod('bench.py', 0o777)
os.chmod('data/deep', 0)
os.chmod('data', 0o500)
""",
    "moves a file up": "os.rename('data/deep/more/leaf.txt', 'leaf.txt')",
}
VIEW = """
import json, os
def answer():
    found = {}
    for place, folders, names in os.walk('..'):
        folders[:] = [name for name in folders if name != '__pycache__']  # of this import
        names = [name for name in names if name not in ('stdout', 'stderr')]
        for path in (os.path.join(place, name) for name in folders + names):
            about = os.lstat(path)
            is_file = os.path.isfile(path) and not path.endswith('solver.py')
            content = open(path).read() if is_file else os.path.islink(path) and os.readlink(path)
            found[path] = (oct(about.st_mode), about.st_nlink, content)
    print(json.dumps([found, os.stat('data/deep/still.txt').st_mtime_ns]))
"""
SCRIPT = """
import json, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from made_repositories import problem_of
from test_clean_copies import OneSlot
from costada.evaluators.sandbox.candidate_runs import run_in_copy
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import Slot
from costada.evaluators.sandbox.slot_kind import SlotKind
from costada.values.candidate import Program

folder = Path({folder!r})
original = problem_of(folder / 'repository', folder / 'problem').evaluate.base.original(folder)
slot = Slot(SlotKind(Layer({layer!r}), (), original=original))
START = 'import mmap, os, shutil\\ndef answer():\\n'

def printed(text):
    found = run_in_copy(
        Program.of({{'src/solver.py': text}}), original, {{'command': ['python', 'bench.py']}},
        Limits(60, processes=8), slots=OneSlot(slot),
    ).output
    assert isinstance(found, dict), found
    return found['status'], found['stdout'], found['stderr']

def view():
    status, text, errors = printed({view!r})
    assert status == 0, errors
    return json.loads(text.splitlines()[0])

views = [view()]
for change in {changes!r}:
    body = ''.join('    ' + line + '\\n' for line in change.strip().splitlines())
    status, _, errors = printed(START + body)
    views.append([status, errors, view()])
slot.close()
print(json.dumps(views))
"""


def views_after(changes, layer, folder, **environment):
    """The first view of a copy, and after each change how that ended and the next view.

    A view is what is in the copy, and when one of its files was made.
    """
    if reason := why_absent(layer):
        pytest.skip(reason)
    make_repository(folder / "repository", FILES)
    script = SCRIPT.format(
        paths=[str(HERE), str(HERE.parents[1])],
        folder=str(folder),
        layer=str(layer),
        changes=list(changes),
        view=VIEW,
    )
    first, *others = json.loads(output_of(f"{WITHOUT_NAMESPACES}{script}", folder, **environment))
    return first, others


@pytest.mark.parametrize("layer", [*LAYERS, Layer.NONE])
def test_the_next_candidate_sees_the_original_whatever_one_changes(layer, tmp_path):
    (first, _), views = views_after(CHANGES.values(), layer, tmp_path)
    texts = {path.removeprefix("../repository/"): text for path, (*_, text) in first.items()}
    expected = {path: text for path, text in FILES.items() if path != "src/solver.py"}
    assert {path: text for path, text in texts.items() if text is not False} == expected
    for name, (status, errors, (found, _)) in zip(CHANGES, views, strict=True):
        assert status == 0, (name, errors)
        assert found == first, name


@pytest.mark.parametrize("layer", [Layer.PROCESS, Layer.LANDLOCK])
def test_what_a_candidate_leaves_alone_is_not_copied_again(layer, tmp_path):
    folder_fd = os.open(gettempdir(), os.O_PATH)
    is_local = file_system(folder_fd) in LOCAL_FILE_SYSTEMS
    os.close(folder_fd)
    if not is_local:
        pytest.skip(f"{gettempdir()} is not on a file system where copies are kept")
    (_, made), views = views_after(["os.unlink('bench.py')"], layer, tmp_path)
    assert [view[1] for *_, view in views] == [made]


def test_copies_are_new_where_changes_through_mappings_set_no_time(tmp_path):
    if not os.path.isdir(SHARED_MEMORY):
        pytest.skip(f"{SHARED_MEMORY}, a tmpfs, is not there")
    changes = [CHANGES["edits through a mapping that it has read"]]
    (first, made), views = views_after(changes, Layer.PROCESS, tmp_path, TMPDIR=SHARED_MEMORY)
    ((status, errors, (found, made_again)),) = views
    assert (status, found) == (0, first), errors
    assert made_again > made
