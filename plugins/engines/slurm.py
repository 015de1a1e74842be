"""Runs of a sweep as one job array on Slurm, submitted with submitit."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from time import monotonic
from types import FrameType
from typing import Any

from costada.evaluators.remote.engine import (
    Call,
    JobLost,
    Outcome,
    QueueEngine,
    StoppableCall,
    SweepSettings,
)
from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.store.files import make_folder

try:
    import submitit
    from submitit.core.utils import DelayedSubmission, FailedJobError
except ModuleNotFoundError as missing:
    raise ValueError("slurm: needs the extra: pip install 'costada[slurm]'") from missing

MINUTES = 60
"""Time limit of a job; one that reaches it is requeued and resumes."""

NAME = "costada-"
"""Begins the names of jobs; the token of their submission follows."""

TIMEOUTS = 1000
"""How often a job may reach its time limit; submitit gives up after three by default."""

SAVING_SECONDS = 60.0
"""How long a run may save after the warning, which comes 90 seconds before the time limit."""

POLL_SECONDS = 3.0
"""How often the queue is read."""

MAX_POLLS = 5
"""Polls of an ended job without result before it counts as lost: shared folders lag behind."""

COMMAND_SECONDS = 60.0
QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"})
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
CUT_OFF = frozenset({"CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"})
"""States of an ended job whose call can simply be repeated."""


class SlurmTask:
    """A call as a job; Slurm requeues it after a preemption, a lost node or at its time limit."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self) -> Any:
        """Execute the call; SIGTERM lets it save and end."""
        # submitit has installed a handler that ignores it.
        signal.signal(signal.SIGTERM, self._request_stop)
        result = submitit.JobEnvironment().paths.result_pickle
        # A job that was requeued may have left its result; who polls must not take it for the new.
        for file in (result, result.with_suffix(".pkl.save_tmp")):
            file.unlink(missing_ok=True)
        return self._call.function(*self._call.arguments)

    def checkpoint(self) -> DelayedSubmission:
        """Save before the time limit; submitit then requeues the job, which repeats the call."""
        if isinstance(self._call.function, StoppableCall):
            self._call.function.stop(SAVING_SECONDS)
        return DelayedSubmission(SlurmTask(self._call))

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        if isinstance(self._call.function, StoppableCall):
            self._call.function.request_stop()


class SlurmQueue:
    """The user's jobs as `squeue` shows them."""

    def __init__(self) -> None:
        self.num_polls = 0
        self._states: dict[str, str] = {}
        self._polled = -POLL_SECONDS

    def state(self, job: str) -> str:
        """The state of a job, empty if the queue does not show it.

        Reads the queue if that is due; a controller that does not respond changes nothing.

        Raises:
            OSError: If it has never responded.
        """
        if monotonic() - self._polled >= POLL_SECONDS:
            self._polled = monotonic()
            try:
                # One line for each waiting task of an array, and jobs that have ended while Slurm
                # remembers them.
                text = command("squeue", "--me", "--array", "--states=all", "-ho", "%i|%T|%j")
            except OSError:
                if not self.num_polls:
                    raise
                return self._states.get(job, "")
            self.num_polls += 1
            rows = [line.strip().split("|", 2) for line in text.splitlines() if line.count("|") > 1]
            self._states = {job: state for job, state, name in rows if name.startswith(NAME)}
        return self._states.get(job, "")


class SlurmJob:
    """A job, and how often it was polled since it left the queue."""

    def __init__(self, folder: Path, job_id: str) -> None:
        self.submitted: submitit.SlurmJob[Any] = submitit.SlurmJob(folder, job_id)
        self.seen = -1
        self.num_polls = 0


class SlurmEngine(QueueEngine):
    """Slurm, as the commands `sbatch`, `squeue` and `scancel` of this machine reach it."""

    def __init__(self, address: str, settings: SweepSettings | None = None) -> None:
        """Check the settings.

        Raises:
            ValueError: If this machine has no Slurm, or `time` is not a number of minutes.
        """
        if settings is None:
            raise ValueError(f"{address}: executes runs of sweeps only")
        absent = [
            name for name in ("sbatch", "srun", "squeue", "scancel") if not shutil.which(name)
        ]
        if absent:
            raise ValueError(f"{address}: this machine has no {absent[0]}, expected one of Slurm")
        self.name = address
        self._folder, self._num_jobs = settings.folder, settings.num_jobs
        self._options = {name.replace("-", "_"): each for name, each in settings.options.items()}
        time = self._options.pop("time", str(MINUTES))
        if not isinstance(time, str) or not time.isdecimal() or not int(time):
            raise ValueError(f"{address} time: got {time}, expected an integer, in minutes")
        self._minutes = int(time)
        self._queue = SlurmQueue()

    def start(self, calls: Sequence[Call]) -> list[SlurmJob]:
        """Submit calls as one array that nobody else will look for."""
        token = token_hex(8)
        return self.jobs(token, self.submit(calls, token), len(calls))

    def submit(self, calls: Sequence[Call], token: str) -> str:
        """Submit calls as one array.

        Raises:
            ValueError: If Slurm refuses it.
        """
        folder = self._folder / token
        make_folder(folder)
        executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=TIMEOUTS)
        executor.update_parameters(
            name=f"{NAME}{token}",
            timeout_min=self._minutes,
            slurm_array_parallelism=self._num_jobs or len(calls),
            # Python reads modules of the working directory first, so that is the jobs' own folder.
            slurm_additional_parameters={"requeue": True, "chdir": str(folder), **self._options},
        )
        try:
            with executor.batch():
                jobs = [executor.submit(SlurmTask(call)) for call in calls]
            return jobs[0].job_id.partition("_")[0]
        except FailedJobError as error:
            lines = str(error).strip().splitlines() or ["no reason"]
            raise ValueError(f"{self.name}: sbatch refused: {lines[-1]}") from None
        finally:
            self._queue = SlurmQueue()  # the one that was read does not show the new jobs

    def jobs(self, token: str, known_id: str, number: int) -> list[SlurmJob]:
        """The jobs of a submission; with several calls they form an array."""
        if not known_id:
            text = command("squeue", "--me", f"--name={NAME}{token}", "-ho", "%F")
            known_id = text.partition("\n")[0].strip()
        ids = [f"{known_id}_{place}" for place in range(number)] if number > 1 else [known_id]
        return [SlurmJob(self._folder / token, each) for each in ids] if known_id else []

    def poll(self, job: SlurmJob, seconds: float = 0.0) -> Outcome | None:
        """The outcome of a job, None while it is queued or running; does not wait."""
        state = self._queue.state(job.submitted.job_id)
        if job.seen == self._queue.num_polls:
            return None
        job.seen = self._queue.num_polls
        if state in QUEUED | RUNNING:  # a requeued job may have the result of before
            job.num_polls = 0
            return None
        if job.submitted.paths.result_pickle.exists():
            return self._outcome(job.submitted)
        job.num_polls += 1
        if job.num_polls <= MAX_POLLS:
            return None
        log = job.submitted.paths.stderr
        name = job.submitted.job_id
        reason = f"job {name} ended: {state or 'no longer known'}; its output is {log}"
        return Outcome(error=JobLost(reason) if state in CUT_OFF else RuntimeError(reason))

    def cancel(self, *jobs: SlurmJob) -> None:
        """Cancel jobs; Slurm gives running ones time to save.

        Raises:
            OSError: If Slurm does not respond.
        """
        if jobs:
            # Quiet: some jobs may have ended.
            command("scancel", "--me", "--quiet", *(job.submitted.job_id for job in jobs))

    def is_queued(self, job: SlurmJob) -> bool:
        """Whether `squeue` shows it as waiting or running."""
        return self._queue.state(job.submitted.job_id) in QUEUED | RUNNING

    def is_running(self, job: SlurmJob) -> bool:
        """Whether the job has a node."""
        return self._queue.state(job.submitted.job_id) in RUNNING

    def _outcome(self, job: submitit.SlurmJob[Any]) -> Outcome:
        """What is in the file of the job's result; of an error, the line that names it."""
        error = job.exception()
        if error is None:
            return Outcome(job.result())
        lines = [line for line in str(error).splitlines() if line.strip("- ")]
        named = [line for line in lines if "Error: " in line]
        return Outcome(error=RuntimeError((named or lines)[-1].strip()))


def command(*words: str) -> str:
    """What a command of Slurm prints; raises `OSError` with its error if it fails."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            env=helper_environment("SLURM_*"),
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{words[0]}: no response within {COMMAND_SECONDS:g} seconds") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OSError(f"{words[0]}: {lines[-1]}")
    return done.stdout
