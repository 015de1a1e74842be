"""The fork server: forks a worker for each order, watches it, kills and removes what it leaves."""

import gc
import json
import os
import random
import resource
import select
import socket
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any

from costada.evaluators.sandbox.inside import (
    confinement,
    fork_hooks,
    kernel,
    process_starts,
    process_tree,
    scratch_folder,
)
from costada.evaluators.sandbox.inside.file_copies import (
    BUILT,
    CAPABILITIES,
    SHARED_MEMORY,
    CleanCopies,
    copy_built,
    copy_evaluator,
    files_below,
)
from costada.evaluators.sandbox.inside.kept_copy import KeptCopy
from costada.evaluators.sandbox.inside.orders import (
    BEGIN,
    CANDIDATE_FILE,
    CHILD_FAULT,
    KEEPING,
    MAX_DESCRIPTORS,
    MAX_ORDER_BYTES,
    ORIGINAL,
    SEED,
    Order,
    Permissions,
    num_descriptors,
    too_many_processes,
    too_many_threads,
    too_much_memory,
)

if TYPE_CHECKING:
    from costada.evaluators.sandbox.inside.candidate_process import CandidateProcess
    from costada.evaluators.sandbox.inside.system_call_filter import Filter

WATCH_SECONDS = 0.1
FILES_WATCH_SECONDS = 0.5
KILOBYTES_PER_MB = 1024
FIRST_TO_KILL = b"1000"
"""Where memory runs out, the kernel kills a candidate before any other process."""


class Server:
    """What both kinds of server have: the control socket, the slot's folder, fewer privileges."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Make the slot's folder, and give up what neither cleaning up nor mounting needs."""
        self.control = socket.socket(fileno=settings["control_fd"])
        self.scratch = settings["scratch"]
        self.has_limits = settings["has_limits"]
        path, self.work = os.path.split(self.scratch)
        if settings["makes_folder"]:
            os.mkdir(path, stat.S_IRWXU)
        self.copies, num_copied = None, 0
        self.spared: tuple[str, ...] = ()
        self.copied_places: list[str] = []
        # Before any folder is opened: copies move this process to another mount namespace.
        if original := settings["original"]:
            is_received, num_copied = original["is_received"], original["num_files"]
            if is_received:
                self.spared = (ORIGINAL,)
                os.mkdir(original["path"], stat.S_IRWXU)
            # Each process that a spawn server starts has lost what a mount needs.
            forks = settings["role"] == "fork_server"
            self.copies = CleanCopies(original, path, may_mount=forks)
            if self.copies.is_overlay and not is_received:
                num_copied = 0
        self.files = scratch_folder.PrivateFiles(path, settings["files_mb"], num_copied)
        self.folder = self.files.folder
        if self.spared:
            self.copied_places = self._copy_files(settings["original"])
        elif self.copies is not None:
            self.copied_places = files_below(settings["original"]["path"])
        if self.has_limits:
            # What candidates may not delete, cleaning up after them must not delete either.
            needed = CAPABILITIES if self.copies else kernel.CAP_SYS_ADMIN
            kernel.drop_privileges(retained=needed)

    def _copy_files(self, original: Mapping[str, Any]) -> list[str]:
        """Copy the files of an evaluator, which the socket names; their places in the copy."""
        with self.control.makefile("rb") as stream:
            line = stream.readline()
            if not line.endswith(b"\n"):
                sys.exit("no files of an evaluator were sent")
            listed = json.loads(line)
            for place in listed["empty_folders"]:
                os.makedirs(os.path.join(original["path"], place), exist_ok=True)
            return copy_evaluator(listed["files"], original["path"], stream)

    def protect(self) -> None:
        """Close this process's memory to others, and have orphans reparented to it."""
        kernel.set_process_option(kernel.PR_SET_DUMPABLE, 0)
        kernel.set_process_option(kernel.PR_SET_CHILD_SUBREAPER, 1)

    def exceeded_files(
        self, order: Order, others: Iterable[int], asked: Callable[[Callable[[], int]], int]
    ) -> str | None:
        """Which limit the files of processes exceed; None if none. `asked` counts them."""
        max_mb, max_files = order["scratch_mb"], scratch_folder.MAX_FILES
        if self.copies:
            if self.copies.is_overlay:
                return None  # their own file system bounds them
            max_mb, max_files = max_mb + self.copies.megabytes, max_files + self.copies.num_files
        look = partial(scratch_folder.excess, others, self.scratch, max_mb, max_files)
        return scratch_folder.excess_reason(asked(look), order["scratch_mb"])

    def say(self, answer: Mapping[str, Any]) -> None:
        """Send an answer."""
        self.control.sendall(json.dumps(answer).encode() + b"\n")


class ForkServer(Server):
    """Serves one slot: one worker at a time, each from the same clean state.

    An empty answer says that it is ready for an order: at the start, and when all that a worker
    left is removed, which may take a while and delays no result. An order may come long before its
    program: the worker is forked and confined, and waits for that.
    """

    def __init__(self, settings: Mapping[str, Any], process: "CandidateProcess") -> None:
        """Prepare the confinement that the layer asks for, and the scratch folder."""
        super().__init__(settings)
        self._process = process
        self._programs = settings["programs"]
        has_overlay = self.copies is not None and self.copies.is_overlay
        self._owns_files = settings["owns_files"] or has_overlay
        has_shared_memory = self.copies is not None and self.copies.has_shared_memory
        self._shared_memory = (
            scratch_folder.SlotFolder(SHARED_MEMORY) if has_shared_memory else None
        )
        self._confinement = None
        self._filters: dict[bool, Filter] = {}
        if settings["confines"]:
            writable = (SHARED_MEMORY,) if has_shared_memory else ()
            owning = {"owns_files": self._owns_files, "writable": writable}
            self._confinement = confinement.Confinement({**settings, **owning})
            if self.copies is not None:
                process.confine_children(self._confinement.of_children, self.copied_places)
        elif self.has_limits:
            self._filters = confinement.limiting_filters()
        self._kept = None
        if self.copies and not has_overlay and not self.spared:
            with suppress(OSError):
                self._kept = KeptCopy(settings["original"]["path"])
        self._order_text = b""
        self._order: dict[str, Any] = {}
        self._prepared_order: Order = {}
        self._resource_limits: list[confinement.ResourceLimit] = []
        self._make_work_folder()
        # The loader looks up a symbol at its first call: once here, instead of in every worker.
        os.dup2(0, 0)
        os.closerange(confinement.MAX_DESCRIPTOR - 1, confinement.MAX_DESCRIPTOR)
        here_fd = os.open(".", os.O_PATH)
        os.fchdir(self._work_fd)
        process.rehearse()
        os.fchdir(here_fd)
        os.close(here_fd)
        self.protect()

    def _make_work_folder(self) -> None:
        """Make the next candidate's scratch folder, and rules for it, which hold for an inode."""
        self._work_fd = self.folder.make(self.work)
        if self._confinement:
            self._confinement.renew(self._work_fd)

    def serve(self) -> None:
        """Carry out orders until the socket ends, then remove the slot's folder.

        A candidate that put something else in the place of that folder ends the slot.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            self.say({"bounds_files": self.files.is_mounted})
            while True:
                text, descriptors, _, _ = socket.recv_fds(
                    self.control, MAX_ORDER_BYTES, MAX_DESCRIPTORS
                )
                if not text:
                    break
                # A `kill` or BEGIN that was sent as its worker ended comes late, alone or ahead of
                # the next order, and means nothing any more.
                order = self._order_in(text)
                if "load" in order:
                    load(order["load"])
                    self._prepared_order = {}  # limits begin at the size that this process has
                    self._say_ready()
                elif "clear" in order:
                    if not self._cleared():
                        break
                    self._say_ready()
                elif order and len(descriptors) != num_descriptors(order):
                    break  # a candidate has lowered our limit of descriptors
                elif order:
                    self.say(self._carry_out(order, descriptors))
                    if "keeps_files" in order:
                        self._permit_executing()
                        with suppress(FileNotFoundError):
                            self.folder.rename(self.work, BUILT)
                    if not self._cleared(BUILT if order.keys() & KEEPING else None):
                        break
                    self._say_ready()
        self.files.remove()

    def _say_ready(self) -> None:
        self.control.sendall(b"{}\n")

    def _order_in(self, text: bytes) -> dict[str, Any]:
        """The order that was sent; mostly the one before, which is not read again."""
        if text != self._order_text:
            self._order = json.loads(text.splitlines()[-1]) if b"{" in text else {}
            self._order_text = text
        return self._order

    def _cleared(self, built: str | None = None) -> bool:
        """Replace the scratch folder by an empty one; whether the slot can be used further.

        One with a copy that is kept is replaced by one with that copy.
        """
        if self._kept and self._kept.is_filled:
            return self._restored(self._kept)
        os.close(self._work_fd)
        usual = os.path.join(self.work, CANDIDATE_FILE)
        self.folder.clear(usual, (*self.spared, built) if built else self.spared)
        if self._shared_memory:
            self._shared_memory.clear(usual)
        if not self.folder.is_in_place:
            return False
        self._make_work_folder()
        return True

    def _restored(self, kept: KeptCopy) -> bool:
        """Give the next candidate a folder with the copy as it was; whether that worked."""
        old, old_fd = token_hex(8), self._work_fd
        try:
            self.folder.rename(self.work, old)
        except OSError:
            return False
        self._make_work_folder()
        has_worked = kept.restore(old_fd, self._work_fd)
        os.close(old_fd)
        self.folder.clear(os.path.join(old, CANDIDATE_FILE), (self.work,))
        return has_worked and self.folder.is_in_place

    def _permit_executing(self) -> None:
        """Let the next program execute what this one has built.

        Where it could reach the files of others, it could not change the modes of its own.
        """
        if self._confinement and not self._owns_files:
            process_tree.run_in_fork(partial(scratch_folder.permit_executing, self.scratch))

    def _carry_out(self, order: Order, descriptors: list[int]) -> dict[str, Any]:
        """Fork a worker; its exit status, and which limit it exceeded, if any."""
        server = os.getpid()
        if self._kept and not (self._kept.is_filled or self._kept.fill(self._work_fd)):
            self._kept = None
            self._cleared()
        # Here, as in a worker it would be lost, and the next one would do it again.
        if order != self._prepared_order:
            self._prepare(order)
        ours, theirs = socket.socketpair() if self._start_filter else (None, None)
        number = fork_hooks.fork_worker()
        if number == 0:
            # However it fails, a fork must never return to the loop that takes orders.
            try:
                self._become_worker(server, order, theirs, *descriptors)
            finally:
                try:
                    traceback.print_exc()  # the reason goes to the log
                finally:
                    os._exit(CHILD_FAULT)
        for descriptor in descriptors:
            os.close(descriptor)  # or the pipes would not end with the worker
        if theirs:
            theirs.close()
        with ExitStack() as held:
            try:
                exceeded = self._watch(number, order, ours, held)
            finally:
                ended = monotonic()
                status = process_tree.kill_tree(number)
        return {"status": status, "exceeded": exceeded, "ended": ended}

    def _prepare(self, order: Order) -> None:
        """Prepare what is the same for all workers of an order."""
        self._prepared_order = order
        self._permissions = Permissions.of(order)
        is_permitted = self._permissions.may_start_processes
        self._filter = self._filters.get(is_permitted)
        may_start = is_permitted or not (self._confinement or self._filter)
        self._counts_starts = kernel.IS_LINUX and self.has_limits and may_start
        # The kernel limits the tasks of all users but root.
        holds_starts = self._counts_starts and os.getuid() == 0
        self._start_filter = process_starts.start_filter() if holds_starts else None
        if self._confinement:
            self._confinement.prepare(self._permissions)
        if self.has_limits:
            self._resource_limits = confinement.resource_limits(order)
        self._process.prepare(order)

    def _become_worker(
        self,
        server: int,
        order: Order,
        of_starts: socket.socket | None,
        request_fd: int,
        result_fd: int,
        log_fd: int,
        *channel_fd: int,
    ) -> None:
        """Turn this fork into a worker, run the candidate and end. Never returns."""
        kernel.new_session()  # what it sends to its process group reaches neither the server nor us
        kernel.die_with_parent(server)
        # Each thing done here is paid for with pages of memory that are copied, so what can be
        # found out before the fork is, and files are opened without Python's objects for them.
        try:
            score_fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(score_fd, FIRST_TO_KILL)
        except OSError:
            pass
        # Its own: flags, locks and owner of an open file are shared by all that inherit it.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        # The order matters: folders are entered by descriptors that are closed afterwards, copies
        # are mounted with capabilities that are dropped afterwards, and the filter comes last, as
        # it refuses most of what is done here.
        if self.copies and not self._kept:
            self.copies.enter(self._work_fd, self.work)
        else:
            os.fchdir(self._work_fd)
        if "has_built" in order:
            copy_built(os.path.join("..", BUILT), order["scratch_mb"])
        if self._confinement and self.copies and self.copies.is_overlay:
            # Rules for the folder do not hold for what covers it.
            self._confinement.renew(os.open(".", os.O_PATH | os.O_DIRECTORY))
        self._limit(order)
        if self._start_filter and of_starts:
            process_starts.hand_over(self._start_filter, of_starts)
        if self._permissions.may_execute:
            os.environ["PATH"] = os.pathsep.join(self._programs)
        kept = (request_fd, result_fd, *channel_fd)
        if self._confinement:
            # The watch reads its files in /proc, which are closed to others if it is not dumpable.
            kernel.set_process_option(kernel.PR_SET_DUMPABLE, 1)
            self._confinement.enforce(kept)
        else:
            confinement.close_others(kept)
            if self._filter:
                self._filter.enforce()
            # Other programs may be running: none may read or change this process before it begins.
            select.select([request_fd], [], [])
            kernel.set_process_option(kernel.PR_SET_DUMPABLE, 1)
        if fork_hooks.SEEDS_ANYWAY:
            seed_random_numbers()
        self._process.serve(*kept)
        os._exit(0)

    def _limit(self, order: Order) -> None:
        """Set the limits of this process, a worker, and give up what could raise them."""
        limits = [*self._resource_limits]
        if self._counts_starts:
            most = process_starts.max_tasks(order["processes"])
            limits.append(confinement.resource_limit(resource.RLIMIT_NPROC, most))
        for limit, bounds in limits:
            resource.setrlimit(limit, bounds)
        if self.has_limits:
            kernel.drop_privileges()

    def _watch(
        self, number: int, order: Order, of_starts: socket.socket | None, held: ExitStack
    ) -> str | None:
        """Wait until the worker has ended, exceeds a limit (then which), or is to be killed.

        Over `of_starts` it sends the listener for the processes that it starts. That stays open
        with what is `held`, until they are killed: without it, a start that waits would fail.
        """
        exit_fd = os.pidfd_open(number)
        held.callback(os.close, exit_fd)
        ready = select.poll()
        ready.register(exit_fd, select.POLLIN)
        ready.register(self.control, select.POLLIN)
        # While it waits for its program, it costs no look, and no limit is exceeded.
        begun = ready.poll()
        if begun != [(exit_fd, select.POLLIN)] and self.control.recv(1) != BEGIN:
            return None
        ending = {exit_fd, self.control.fileno()}
        listener_fd, self._num_free = None, 0
        if of_starts:
            ready.register(held.enter_context(of_starts), select.POLLIN)
        now = monotonic()
        next_look, next_files_look = now + WATCH_SECONDS, now + FILES_WATCH_SECONDS
        exceeded = None
        while not exceeded:
            events = dict(ready.poll(WATCH_SECONDS * 1000))
            if events.keys() & ending:
                return None
            if of_starts and of_starts.fileno() in events:
                ready.unregister(of_starts)
                listener_fd = process_starts.listener_of(of_starts)
                if listener_fd is not None:
                    held.callback(os.close, listener_fd)
                    ready.register(listener_fd, select.POLLIN)
            elif listener_fd in events:
                exceeded = self._exceeded_by_start(order, listener_fd)
            now = monotonic()
            if not exceeded and now >= next_look:
                exceeded = self._exceeded_limit(order, number, now >= next_files_look)
                next_look = now + WATCH_SECONDS
                next_files_look += FILES_WATCH_SECONDS if now >= next_files_look else 0.0
        return exceeded

    def _exceeded_by_start(self, order: Order, listener_fd: int) -> str | None:
        """Let a process start, which waits for that, unless there are too many.

        It is received before the count: until then a signal would have the start fail. What was
        permitted may not be there yet when the next count is made, so a few more than the limit
        may run until the next look.
        """
        identifier = process_starts.receive(listener_fd)
        if self._num_free == 0:
            num_running = len(process_tree.descendants(os.getpid()))
            if num_running > 1 + order["processes"]:
                return too_many_processes(order["processes"])
            self._num_free = 2 + order["processes"] - num_running
        self._num_free -= 1
        if identifier is not None:
            process_starts.permit(listener_fd, identifier)
        return None

    def _exceeded_limit(self, order: Order, number: int, are_files_due: bool) -> str | None:
        if not self.has_limits:
            return None
        if process_tree.num_threads(number) > order["threads"] + ("has_models" in order):
            return too_many_threads(order["threads"])
        others = process_tree.descendants(os.getpid())
        if len(others) > 1 + order["processes"]:
            return too_many_processes(order["processes"])
        if len(others) > 1 or "may_execute" in order:
            # Together, beside what they began with; rlimits hold for each of them alone.
            bare = process_tree.memory_of([os.getpid()], 0)
            allowed = bare + order["memory_mb"] * KILOBYTES_PER_MB
            if process_tree.memory_of(others, allowed) > allowed:
                return too_much_memory(order["memory_mb"])
        if not are_files_due:
            return None
        return self.exceeded_files(order, others, process_tree.run_in_fork)


def load(modules: list[str]) -> None:
    """Import modules for all workers to come."""
    fork_hooks.intercept()
    for name in modules:
        import_module(name)
    fork_hooks.stop_intercepting()
    seed_random_numbers()
    freeze_memory()


def freeze_memory() -> None:
    """Leave forks of this process as little as can be to copy of what it holds."""
    gc.collect()
    # What was needed only to load modules: a sixth of the pages that each fork enters in its table.
    kernel.trim_memory()
    gc.freeze()  # a collection in a fork would write to, and so copy, most of this memory


def seed_random_numbers() -> None:
    """Have all forks of this process begin with the same random numbers."""
    random.seed(SEED)
    if "numpy" in sys.modules:
        import numpy.random

        numpy.random.seed(SEED)
