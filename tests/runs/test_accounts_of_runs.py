"""Runs of the command line that draw from one purse."""

import pytest

from costada.store.purse import Purse

pytestmark = pytest.mark.process


def test_runs_at_one_path_on_two_machines_have_accounts_of_their_own(invoke, near, tmp_path):
    out, file = tmp_path / "run", tmp_path / "purse.sqlite"
    Purse(1, name="team", path=file).close()
    words = ("--purse", f"{file}#team", "--max-iterations")
    for machine in ("first", "second"):
        result = invoke("run", near, "--budget", 0.2, "--out", out, *words, 2)
        assert result.exit_code == 0, result.output
        out.rename(tmp_path / machine)
    (tmp_path / "first").rename(out)
    assert invoke("resume", out, *words, 3).exit_code == 0
    with Purse.existing("team", path=file) as purse:
        root, *accounts = purse.accounts()
        own = {each.name: each for each in accounts if each.parent == root.id}
        assert list(own) == [str(out), f"{out} (2)"]
        assert {float(each.budget) for each in own.values()} == {0.2}
        first, second = own.values()
        assert first.spent > second.spent > 0
        assert purse.spent == first.spent + second.spent
