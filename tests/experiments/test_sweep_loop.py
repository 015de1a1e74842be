import signal
from collections.abc import Callable

import pytest

from costada.experiments.sweep.loop import SIGNALS, STOPPING, StopSignals, SweepLoop
from costada.experiments.sweep.progress import SweepProgress
from costada.experiments.sweep.sweep import Status, SweepRun
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder

End = tuple[Status, str]
FINISHED, FAILED = (Status.FINISHED, ""), (Status.FAILED, "no money")
INTERRUPTED = (Status.INTERRUPTED, "")


class ScriptedProcess:
    """Ends as told after some looks, or when it is asked to; counts what it is asked."""

    def __init__(self, looks: float = 1, end: End = FINISHED, obeys: bool = True) -> None:
        self.looks, self.final, self.obeys = looks, end, obeys
        self.drains = self.kills = 0

    def end(self) -> End | None:
        self.looks -= 1
        return self.final if self.looks < 0 else None

    def drain(self) -> None:
        self.drains += 1
        if self.obeys:
            self.looks, self.final = 0, INTERRUPTED

    def kill(self) -> None:
        self.kills += 1
        self.looks, self.final = 0, INTERRUPTED


@pytest.fixture
def runs(tmp_path):
    return [
        SweepRun(f"run-{seed}", RunConfig(problem="x", seed=seed), RunFolder(tmp_path / str(seed)))
        for seed in range(4)
    ]


def carry_out(
    runs: list[SweepRun],
    start: Callable[[SweepRun], ScriptedProcess],
    wish: StopSignals | None = None,
    num_jobs: int = 2,
) -> list[End]:
    wish = wish or StopSignals(lambda text: None)
    ended = SweepLoop(runs, num_jobs, start, SweepProgress(), wish).carry_out()
    return [(run.status, run.error) for run in ended]


def test_no_more_runs_than_jobs_are_under_way(runs):
    started: list[ScriptedProcess] = []

    def start(run: SweepRun) -> ScriptedProcess:
        assert sum(process.looks >= 0 for process in started) < 2
        started.append(ScriptedProcess(looks=run.config.seed % 2))
        return started[-1]

    assert carry_out(runs, start) == [FINISHED] * 4
    assert len(started) == 4


def test_finished_runs_are_left_alone(runs):
    kept = SweepRun("kept", runs[0].config, runs[0].folder, status=Status.FINISHED)
    begun: list[str] = []

    def start(run: SweepRun) -> ScriptedProcess:
        begun.append(run.name)
        return ScriptedProcess()

    assert carry_out([kept, *runs[1:]], start) == [FINISHED] * 4
    assert begun == ["run-1", "run-2", "run-3"]


def test_a_failure_stops_no_other_run(runs):
    ends = [FAILED, FINISHED, FAILED, FINISHED]
    assert carry_out(runs, lambda run: ScriptedProcess(end=ends[run.config.seed])) == ends


def test_the_first_wish_lets_runs_save_and_starts_no_more(runs):
    wish = StopSignals(lambda text: None)
    started: list[ScriptedProcess] = []

    def start(run: SweepRun) -> ScriptedProcess:
        started.append(ScriptedProcess(looks=1000))
        if len(started) == 2:
            wish.count = 1
        return started[-1]

    assert carry_out(runs, start, wish) == [INTERRUPTED, INTERRUPTED, *[(Status.WAITING, "")] * 2]
    assert [(process.drains, process.kills) for process in started] == [(1, 0), (1, 0)]


def test_the_second_wish_ends_runs_at_once(runs):
    wish = StopSignals(lambda text: None)

    def start(run: SweepRun) -> ScriptedProcess:
        wish.count = 2
        return ScriptedProcess(looks=1000, obeys=False)

    assert carry_out(runs[:1], start, wish) == [INTERRUPTED]


def test_a_process_that_cannot_be_started_ends_the_others_first(runs):
    started: list[ScriptedProcess] = []

    def start(run: SweepRun) -> ScriptedProcess:
        if started:
            raise OSError("no more processes")
        started.append(ScriptedProcess(looks=1000))
        return started[0]

    with pytest.raises(OSError, match="no more processes"):
        carry_out(runs, start)
    assert (started[0].drains, started[0].looks) == (1, -1)


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_are_counted_and_said_once_and_given_back(number):
    before, heard = signal.getsignal(number), []
    with StopSignals(heard.append) as wish:
        signal.raise_signal(number)
        signal.raise_signal(number)
    assert (wish.count, heard) == (2, [STOPPING])
    assert signal.getsignal(number) is before
