import errno
import os
from pathlib import Path

import pytest

from costada.store.files import remove_unfinished, replace_folder, replace_text


def contents(folder):
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_a_folder_is_replaced_with_all_its_files(tmp_path):
    path = tmp_path / "best"
    replace_folder(path, {"a.py": "1", "pkg/b.py": "2"})
    replace_folder(path, {"pkg/b.py": "3", "pkg/deep/c.py": "π"})
    assert contents(path) == {"pkg/b.py": "3", "pkg/deep/c.py": "π"}
    assert list(tmp_path.iterdir()) == [path]
    modes = {each: each.stat().st_mode & 0o777 for each in (path, *path.rglob("*"))}
    assert all(mode == (0o700 if each.is_dir() else 0o600) for each, mode in modes.items())


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_link_in_the_place_of_a_folder_is_replaced_and_its_target_kept(tmp_path, is_folder):
    target = tmp_path / "precious"
    if is_folder:
        target.mkdir()
        (target / "a.py").write_text("mine")
    else:
        target.write_text("mine")
    path = tmp_path / "best"
    path.symlink_to(target)
    replace_folder(path, {"a.py": "1"})
    assert not path.is_symlink()
    assert contents(path) == {"a.py": "1"}
    assert (target / "a.py" if is_folder else target).read_text() == "mine"


def test_links_in_a_folder_that_is_replaced_are_not_followed(tmp_path):
    path, precious = tmp_path / "best", tmp_path / "precious"
    precious.mkdir()
    (precious / "a.py").write_text("mine")
    path.mkdir()
    (path / "pkg").symlink_to(precious)
    replace_folder(path, {"pkg/a.py": "1"})
    assert (precious / "a.py").read_text() == "mine"
    assert contents(path) == {"pkg/a.py": "1"}


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "best").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a folder"):
        replace_folder(tmp_path / "best", {"a.py": "1"})
    assert (tmp_path / "best").read_text() == "mine"


def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "best"
    replace_folder(path, {"a.py": "1"})
    with pytest.raises(OSError, match="File name too long"):
        replace_folder(path, {"b.py": "2", "x" * 300: "3"})
    assert contents(path) == {"a.py": "1"}
    assert os.listdir(tmp_path) == ["best"]


def test_the_old_folder_is_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    path, rename = tmp_path / "best", os.rename
    replace_folder(path, {"a.py": "1"})

    def failing(source, target):
        if target == path and contents(source) == {"b.py": "2"}:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        replace_folder(path, {"b.py": "2"})
    assert caught.value.filename == str(path)
    assert contents(path) == {"a.py": "1"}
    assert os.listdir(tmp_path) == ["best"]


def test_what_killed_processes_left_beside_a_folder_is_removed(tmp_path):
    path = tmp_path / "best"
    replace_folder(path, {"a.py": "1"})
    replace_folder(tmp_path / ".best.0123.part", {"a.py": "1", "pkg/b.py": "2"})
    (tmp_path / ".best.py.4567.part").write_text("half")
    (tmp_path / ".best.89ab.part").symlink_to(path)
    remove_unfinished(path)
    assert list(tmp_path.iterdir()) == [path]
    assert contents(path) == {"a.py": "1"}


def test_an_error_names_the_file_and_not_its_unfinished_part():
    with pytest.raises(OSError, match=r"'/proc/page\.html'$") as caught:
        replace_text(Path("/proc/page.html"), "text")
    assert caught.value.filename == "/proc/page.html"
