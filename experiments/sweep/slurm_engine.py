"""Runs of a sweep as one job array on Slurm, submitted with submitit."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from time import monotonic
from types import FrameType
from typing import Any

from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.experiments.sweep.engine import MINUTES, SLURM
from costada.experiments.sweep.job_file import JOBS, JobFile, Submission
from costada.experiments.sweep.loop import End
from costada.experiments.sweep.sweep import Status, SweepRun, with_progress
from costada.experiments.sweep.worker import WorkerRun
from costada.store.files import make_folder

try:
    import submitit
    from submitit.core.utils import DelayedSubmission, FailedJobError
except ModuleNotFoundError as missing:
    raise ValueError("--on slurm: needs the extra: pip install 'costada[slurm]'") from missing

NAME = "costada-"
"""Begins the names of jobs; the token of their submission follows."""

TIMEOUTS = 1000
"""How often a job may reach its time limit."""

SAVING_SECONDS = 60.0
"""How long a run may save after the warning, which comes 90 seconds before the time limit."""

LOOK_SECONDS = 3.0
"""How often the queue is read."""

LAST_LOOKS = 5
"""Looks at an ended job without result before it counts as lost: shared folders lag behind."""

COMMAND_SECONDS = 60.0
QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"})
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
CUT_OFF = frozenset({"CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"})
"""States of an ended job whose run can simply be resumed."""


class SlurmTask:
    """A run as a job; Slurm requeues it after a preemption, a lost node or at its time limit."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run
        self._should_stop = False

    def __call__(self) -> End:
        """Start or resume the run; SIGTERM lets it save and end."""
        signal.signal(signal.SIGTERM, self._request_stop)
        result = submitit.JobEnvironment().paths.result_pickle
        for file in (result, result.with_suffix(".pkl.save_tmp")):  # of a job that was requeued
            file.unlink(missing_ok=True)
        return self._run.carry_out(lambda: self._should_stop)

    def checkpoint(self) -> DelayedSubmission:
        """Save before the time limit; submitit then requeues the job, which resumes the run."""
        self._run.stop(SAVING_SECONDS)
        return DelayedSubmission(SlurmTask(replace(self._run)))

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._should_stop = True


class SlurmQueue:
    """The user's jobs as `squeue` shows them."""

    def __init__(self) -> None:
        self.num_looks = 0
        self._states: dict[str, str] = {}
        self._looked = -LOOK_SECONDS

    def refresh(self) -> None:
        """Read the queue if that is due; a controller that does not respond changes nothing.

        Raises:
            OSError: If it has never responded.
        """
        if monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = monotonic()
        try:
            text = command("squeue", "--me", "--array", "--states=all", "-ho", "%i|%T|%j")
        except OSError:
            if not self.num_looks:
                raise
            return
        self.num_looks += 1
        rows = [line.strip().split("|", 2) for line in text.splitlines() if line.count("|") > 1]
        self._states = {job: state for job, state, name in rows if name.startswith(NAME)}

    def state(self, job: str) -> str:
        """The state of a job, empty if the queue does not show it."""
        return self._states.get(job, "")

    def status(self, job: str) -> Status | None:
        """Whether a job is queued or running, `None` if it is neither."""
        state = self.state(job)
        if state in RUNNING:
            return Status.RUNNING
        return Status.QUEUED if state in QUEUED else None


class SlurmProcess:
    """The job of a run. Draining it only ends the wait: the job continues."""

    def __init__(self, run: SweepRun, job: submitit.SlurmJob[End], queue: SlurmQueue) -> None:
        """Take the job of a run, and the queue that shows it."""
        self._run, self._job, self._queue = run, job, queue
        self._seen = -1
        self._lost_looks = 0
        self._is_left = False

    def has_started(self) -> bool:
        """Whether the job has a node."""
        return self._queue.status(self._job.job_id) is Status.RUNNING

    def end(self) -> End | None:
        """How the run ended, `None` while the job is queued or running."""
        self._queue.refresh()
        if self._is_left:
            return self._queue.status(self._job.job_id) or Status.QUEUED, ""
        if self._seen == self._queue.num_looks:
            return None
        self._seen = self._queue.num_looks
        if self._queue.status(self._job.job_id):  # a requeued job may have the result of before
            self._lost_looks = 0
            return None
        if self._job.paths.result_pickle.exists():
            return self._result()
        self._lost_looks += 1
        state = self._queue.state(self._job.job_id)
        return self._end_without_result(state) if self._lost_looks > LAST_LOOKS else None

    def drain(self) -> None:
        """Stop waiting for the job."""
        self._is_left = True

    def kill(self) -> None:
        """Stop waiting for the job."""
        self._is_left = True

    def _result(self) -> End:
        if error := self._job.exception():
            (*_, last) = [line for line in str(error).splitlines() if line.strip("- ")]
            lines = [line for line in str(error).splitlines() if "Error: " in line]
            return Status.FAILED, (lines or [last])[-1].strip()
        return self._job.result()

    def _end_without_result(self, state: str) -> End:
        run = with_progress(replace(self._run, status=Status.WAITING))
        if run.status is Status.FINISHED:
            return Status.FINISHED, ""
        log = self._job.paths.stderr
        words = f"job {self._job.job_id} ended: {state or 'no longer known'}; its output is {log}"
        return (Status.INTERRUPTED if state in CUT_OFF else Status.FAILED), words


class SlurmEngine:
    """Slurm, as the commands `sbatch`, `squeue` and `scancel` of this machine reach it."""

    leaving = "Leaving: the jobs continue. --status shows them, --cancel cancels them"
    outlives_command = True

    def __init__(
        self, out: Path, parameters: Mapping[str, str | bool], num_jobs: int | None
    ) -> None:
        """Take the sweep's folder, options of `sbatch`, and how many jobs may run at once.

        Raises:
            ValueError: If this machine has no Slurm, or `time` is no number of minutes.
        """
        absent = [
            name for name in ("sbatch", "srun", "squeue", "scancel") if not shutil.which(name)
        ]
        if absent:
            raise ValueError(f"--on slurm: this machine has no {absent[0]}, expected one of Slurm")
        self._out, self._num_jobs = out, num_jobs
        self._options = {name.replace("-", "_"): value for name, value in parameters.items()}
        time = self._options.pop("time", str(MINUTES))
        if not isinstance(time, str) or not time.isdecimal() or not int(time):
            raise ValueError(f"--slurm time: got {time}, expected a whole number of minutes")
        self._minutes = int(time)
        self._queue = SlurmQueue()
        self._jobs: dict[str, submitit.SlurmJob[End]] = {}

    def active(self) -> Mapping[str, Status]:
        """The runs that have a queued or running job, by name."""
        self._queue.refresh()
        known = {name: self._queue.status(job.job_id) for name, job in self._read_jobs().items()}
        return {name: status for name, status in known.items() if status}

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Submit runs as one array.

        The submission is on file before it is made: if the command dies in between, the next one
        finds the array by its name.

        Raises:
            ValueError: If Slurm refuses it.
            OSError: If Slurm does not respond.
        """
        if not runs:
            self._jobs = self._read_jobs()
            return
        submission = Submission(token_hex(8), tuple(run.name for run in runs))
        known = JobFile.of(self._out, SLURM, runs)
        replace(known, submissions=(*known.submissions, submission)).save(self._out)
        try:
            job, *_ = self._submitted(submission, runs)
        except FailedJobError as error:
            known.save(self._out)
            lines = str(error).strip().splitlines() or ["no reason"]
            raise ValueError(f"--on slurm: sbatch refused: {lines[-1]}") from None
        submission = replace(submission, job=job.job_id.partition("_")[0])
        replace(known, submissions=(*known.submissions, submission)).save(self._out)
        self._queue = SlurmQueue()
        self._jobs = self._read_jobs()

    def start(self, run: SweepRun) -> SlurmProcess:
        """The job that a run was submitted as."""
        return SlurmProcess(run, self._jobs[run.name], self._queue)

    def _submitted(
        self, submission: Submission, runs: Sequence[SweepRun]
    ) -> list[submitit.Job[Any]]:
        folder = self._folder(submission)
        make_folder(folder)
        executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=TIMEOUTS)
        executor.update_parameters(
            name=f"{NAME}{submission.token}",
            timeout_min=self._minutes,
            slurm_array_parallelism=self._num_jobs or len(runs),
            # Python reads modules of the working directory first, so that is the jobs' own folder.
            slurm_additional_parameters={"requeue": True, "chdir": str(folder), **self._options},
        )
        with executor.batch():
            return [executor.submit(SlurmTask(WorkerRun(run))) for run in runs]

    def _read_jobs(self) -> dict[str, submitit.SlurmJob[End]]:
        """The last job of each run that was submitted."""
        known = JobFile.load(self._out)
        return {
            name: submitit.SlurmJob(self._folder(found), found.job_of(name))
            for submission in (known.submissions if known else ())
            for found in [self._found(submission)]
            if found.job
            for name in found.runs
        }

    def _found(self, submission: Submission) -> Submission:
        """A submission with its id, which Slurm knows if the file does not."""
        if submission.job:
            return submission
        text = command("squeue", "--me", f"--name={NAME}{submission.token}", "-ho", "%F")
        return replace(submission, job=text.split()[0] if text.split() else "")

    def _folder(self, submission: Submission) -> Path:
        return self._out / JOBS / submission.token


def cancel(submission: Submission) -> None:
    """Cancel the jobs of a submission; Slurm gives running ones time to save.

    Raises:
        OSError: If Slurm does not respond.
    """
    command("scancel", "--me", f"--name={NAME}{submission.token}")


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
