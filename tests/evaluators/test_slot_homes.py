"""What a candidate puts in the place of its slot's folder, or into it, is not deleted for that."""

import os
import tempfile
from pathlib import Path

import pytest
from sandbox_runs import AMPLE, becomes_true, told_by_script

from costada.evaluators.sandbox.execution import execute, request_for
from costada.evaluators.sandbox.layers import Layer, SlotKind
from costada.evaluators.sandbox.results import results_of
from costada.evaluators.sandbox.slot import Slot

KINDS = {
    "forked": SlotKind(Layer.PROCESS, (), files_mb=0),
    "single use": SlotKind(Layer.PROCESS, (), is_single_use=True, files_mb=0),
}
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of another user")


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def slot(request, tmp_path, monkeypatch):
    """A slot whose folder lies in tmp_path / "slots"."""
    (tmp_path / "slots").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "slots"))
    slot = Slot(request.param)
    yield slot
    slot.destroy()


def run_in(slot, body):
    call = {"mode": "candidate", "entry_point": "f"}
    request = request_for(f"import os\ndef f():\n    {body}".encode(), call, [{}])
    return results_of(execute(slot, request, AMPLE, AMPLE.wall_seconds))[0]


def precious_folder(tmp_path):
    """Return a folder of somebody's that looks like a slot's."""
    folder = tmp_path / "precious"
    (folder / "work").mkdir(parents=True)
    for name in ("file", "work/candidate.py", "work/other"):
        (folder / name).write_text("x")
    folder.chmod(0o750)
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_uid)
        for path in [folder, *folder.rglob("*")]
    }


PUT = "home = os.path.dirname(os.getcwd()); os.rename(home, home + '-away'); {put}; return 1"


@pytest.mark.parametrize("put", ["os.symlink({target!r}, home)", "os.rename({target!r}, home)"])
def test_a_folder_in_the_place_of_the_slots_own_is_left_alone(slot, tmp_path, put):
    precious = precious_folder(tmp_path)
    before = contents(precious)
    home = Path(slot.scratch).parent
    assert run_in(slot, PUT.format(put=put.format(target=str(precious)))).output == 1
    assert becomes_true(lambda: not slot.is_alive)
    slot.destroy()
    assert contents(precious if precious.exists() else home) == before
    assert [path for path in (tmp_path / "slots").iterdir() if path != home] == []
    assert not home.is_symlink()


@needs_root
def test_a_folder_of_another_user_in_the_slots_own_is_left_alone(slot, tmp_path):
    others = tmp_path / "home" / "other"
    others.mkdir(parents=True)
    (others / "file").write_text("x")
    for path in (others, others / "file"):
        os.chown(path, NOBODY, NOBODY)
    before = contents(others)
    move = f"os.rename({str(others.parent)!r}, 'taken'); return os.getcwd()"
    taken = Path(run_in(slot, move).output, "taken")
    slot.destroy()
    [found] = [path for path in tmp_path.rglob("other") if path.is_dir()]
    assert contents(found) == before
    assert not taken.is_symlink()


def test_a_folder_that_is_moved_while_it_is_emptied_leads_nowhere(tmp_path):
    deep = tmp_path / "slot" / "/".join("abcdefghijklmnopqrstuvwxyz")
    deep.mkdir(parents=True)
    (tmp_path / "precious" / "folder").mkdir(parents=True)
    text = (
        "from contextlib import suppress\n"
        "from costada.evaluators.sandbox.inside.scratch_folder import SlotFolder\n"
        f"root = {str(tmp_path)!r}\n"
        "def move(name, arguments):\n"
        "    if name == 'os.rmdir' and arguments[0] == 'z':\n"
        "        inner = '/'.join('abcdefghijklmnopqr')\n"
        "        os.rename(f'{root}/slot/{inner}', f'{root}/precious/r')\n"
        "sys.addaudithook(move)\n"
        "home = SlotFolder(f'{root}/slot')\n"
        "with suppress(OSError):\n"
        "    home.remove()\n"
        "print('moved', os.path.exists(f'{root}/precious/folder'))"
    )
    assert told_by_script(text, tmp_path) == "moved True"
