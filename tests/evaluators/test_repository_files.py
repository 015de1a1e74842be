"""Which files of a repository its copies hold, and what their hash covers."""

import os
from contextlib import suppress

import pytest
from made_repositories import FILES, commit, git, make_repository, problem_of, write

from costada.evaluators.folders import load_folder
from costada.evaluators.original_folder import base_of
from costada.evaluators.repository_files import files_hash, repository_files

pytestmark = pytest.mark.process


@pytest.fixture
def repository(tmp_path):
    return make_repository((tmp_path / "repository").resolve())


def paths_of(root, without=None, also=()):
    return set(repository_files(root, without or root.parent / "problem", also).files)


def test_tracked_files_and_new_ones_count_but_no_ignored_hidden_or_secret_ones(repository):
    write(
        repository, {".gitignore": "build/\n*.log\n", "new.py": "", "build/a.so": "", "b.log": ""}
    )
    write(repository, {".cache/x": "", ".env": "KEY=1", ".env.local": "KEY=1", "src/.netrc": ""})
    write(repository, {".config.toml": ""})
    git(repository, "add", "--force", ".env", ".config.toml", "src/.netrc")
    expected = {*FILES, "new.py", ".config.toml"}
    assert paths_of(repository) == expected  # .gitignore is not tracked, and hidden
    git(repository, "add", ".gitignore")
    assert paths_of(repository) == {*expected, ".gitignore"}


def test_deleted_files_do_not_count_and_any_name_does(repository):
    (repository / "bench.py").unlink()
    names = {"a\nb.txt", "quote'\".txt", "-x", "ünïcode.txt", "a b"}
    write(repository, dict.fromkeys(names, ""))
    os.close(os.open(os.fsencode(repository) + b"/\xff", os.O_CREAT))
    assert paths_of(repository) == {*FILES, *names, "\udcff"} - {"bench.py"}


def test_a_part_of_a_repository_counts_alone(repository):
    assert paths_of(repository / "src") == {"solver.py"}


def test_a_repository_in_the_repository_is_listed_by_itself(repository):
    inner = make_repository(repository / "inner", {"x.py": "", ".gitignore": "y\n"})
    write(inner, {"y": "", "z": ""})
    assert paths_of(repository) == {*FILES, "inner/x.py", "inner/z", "inner/.gitignore"}


def test_variables_of_git_do_not_name_another_repository(repository, tmp_path, monkeypatch):
    other = make_repository(tmp_path / "other", {"other.py": ""})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert paths_of(repository) == {*FILES}


def test_without_git_all_that_is_not_hidden_or_left_behind_by_python_counts(tmp_path):
    hidden = {".git_like/x": "", "src/__pycache__/x.pyc": "", ".env": "", "src/.x": ""}
    root = write(tmp_path.resolve() / "plain", {**FILES, **hidden})
    assert paths_of(root) == {*FILES}


def test_the_problem_folder_does_not_count_where_it_is_in_the_repository(repository):
    inner = write(repository / "problem", {"problem.md": ""})
    assert paths_of(repository, inner) == {*FILES}
    assert paths_of(repository, repository.parent) == {*FILES, "problem/problem.md"}


def test_ignored_files_count_that_the_settings_name(repository):
    write(repository, {".gitignore": "build\n", "build/a.so": "", "build/b.o": ""})
    assert paths_of(repository, also=["build/*.so"]) == {*FILES, "build/a.so"}
    with pytest.raises(ValueError, match=r"files has '\*\.none'; expected files of"):
        paths_of(repository, also=["*.none"])


def test_links_are_kept_within_the_repository_and_left_out_if_they_lead_elsewhere(repository):
    links = {
        "near": "src",
        "absolute": str(repository / "data" / "numbers.txt"),
        "src/up": "../data",
        "broken": "nothing",
        "loop": "loop",
        "away": "/etc/passwd",
        "above": "../other",
        "round": "src/up/../../../other",
        "own_env": ".git/config",
    }
    for path, target in links.items():
        (repository / path).symlink_to(target)
    commit(repository)
    found = repository_files(repository, repository.parent / "problem")
    assert found.files.keys() == FILES.keys()
    kept = {name: found.links[name] for name in ("near", "absolute", "src/up", "broken")}
    assert kept == {
        "near": "src",
        "absolute": "data/numbers.txt",
        "src/up": "../data",
        "broken": "nothing",
    }
    outside = {name: links[name] for name in ("away", "above", "round")}
    assert found.left_out == outside


def test_a_folder_that_a_link_replaced_leads_nowhere(repository, tmp_path):
    outside = write(tmp_path / "outside", {"numbers.txt": "secret"})
    (repository / "data" / "numbers.txt").unlink()
    (repository / "data").rmdir()
    (repository / "data").symlink_to(outside)
    found = repository_files(repository, tmp_path / "problem")
    assert found.files.keys() == FILES.keys() - {"data/numbers.txt"}
    assert found.left_out == {"data": str(outside)}


def test_what_is_no_file_does_not_count(repository):
    os.mkfifo(repository / "pipe")
    assert paths_of(repository) == {*FILES}


def test_the_hash_covers_names_contents_permissions_and_links(repository):
    def digest():
        found = repository_files(repository, repository.parent / "problem")
        return files_hash(repository, found.files, found.links)

    seen = [digest()]
    changes = [
        lambda: (repository / "bench.py").write_text("x"),
        lambda: (repository / "bench.py").chmod(0o755),
        lambda: (repository / "bench.py").rename(repository / "renamed.py"),
        lambda: (repository / "link").symlink_to("src"),
        lambda: (repository / "new").write_text(""),
    ]
    for change in changes:
        change()
        seen.append(digest())
    assert len(set(seen)) == len(seen)
    os.utime(repository / "new", (1, 1))
    assert digest() == seen[-1]


def test_a_candidate_has_no_file_at_a_place_that_the_repository_uses(repository):
    (repository / "src" / "link").symlink_to("../data")
    found = repository_files(repository, repository.parent / "problem")
    base = base_of(found, {"src/solver.py"})
    assert base.conflict("src/solver.py") is None
    assert base.conflict("src/new/deep.py") is None
    for path in ("src/link", "src/link/x.py", "bench.py", "bench.py/x.py", "data", "src"):
        assert base.conflict(path), path


def test_links_that_fit_the_patterns_are_not_of_the_program(repository, tmp_path):
    (repository / "src" / "leak.py").symlink_to("/etc/passwd")
    (repository / "src" / "near.py").symlink_to("../bench.py")
    problem = problem_of(repository, tmp_path / "problem")
    assert [*problem.start] == ["src/solver.py"]
    assert problem.notes == ["src/leak.py is left out of the copies: it leads to /etc/passwd"]


def test_a_fingerprint_covers_what_no_candidate_changes(repository, tmp_path):
    def fingerprint(**given):
        return problem_of(repository, tmp_path / "problem", **given).fingerprint

    first = fingerprint()
    write(repository, {"src/solver.py": "def answer():\n    return 0.25\n"})
    (tmp_path / "problem" / "notes.txt").write_text("x")
    assert fingerprint() == first
    assert fingerprint(command="python -O bench.py") != first
    assert fingerprint(settings="build = 'true'") != first
    write(repository, {"data/numbers.txt": "4\n"})
    assert fingerprint() not in (first, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"repository": None}, "repository is missing; needed where command is given"),
        ({"command": None}, "command is missing; needed where repository is given"),
        ({"program": None}, "program is missing; expected patterns"),
        ({"program": '["none/*.py"]'}, "holds no file that fits 'none/\\*.py'; expected one"),
        ({"program": '["ignored/*.py"]'}, "fits only files that git ignores"),
        ({"repository": '"/none/such"'}, "repository is '/none/such'; expected a folder"),
        ({"run": '"{binary}"'}, "run is '{binary}'; expected none beside repository"),
        ({"entry_point": '"f"'}, "entry_point is 'f'; expected none beside repository"),
        ({"command": '"python \'x"'}, 'command is "python \'x"; expected quotes that end'),
        ({"command": '"x | tail -1"'}, r"command is 'x \| tail -1'; .* without '\|', as no shell"),
        ({"build": '"make && x"'}, "build is 'make && x'; expected a command without '&&'"),
        ({"command": '"x --export-json /tmp/x"'}, "writes '/tmp/x'; expected a path below"),
        ({"command": '"x --benchmark-json=../x"'}, "writes '../x'; expected a path below"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(change, reason, repository, tmp_path):
    write(repository, {".gitignore": "ignored\n", "ignored/x.py": ""})
    folder = tmp_path / "problem"
    problem_of(repository, folder)
    lines = [line.partition(" = ") for line in (folder / "problem.toml").read_text().splitlines()]
    settings = {name: value for name, _, value in lines if name} | change
    given = [f"{name} = {value}" for name, value in settings.items() if value is not None]
    (folder / "problem.toml").write_text("\n".join(given))
    with pytest.raises(ValueError, match=reason):
        load_folder(folder)


def test_listing_the_files_starts_no_program_that_the_repository_names(tmp_path):
    root = make_repository(tmp_path.resolve() / "given", {"a/x.py": "", "b/y.py": "", "z.py": ""})
    tree = git(root, "rev-parse", "HEAD:b").strip()
    git(root, "sparse-checkout", "init", "--cone", "--sparse-index")
    git(root, "sparse-checkout", "set", "a")
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::touch {tmp_path}/started",
        "protocol.ext.allow": "always",
    }
    for name, value in settings.items():
        git(root, "config", name, value)
    with suppress(ValueError):  # what git says of a folder that it cannot fetch differs
        assert "z.py" in paths_of(root)
    assert not (tmp_path / "started").exists()
