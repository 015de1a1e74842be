"""The threads that work on the steps in flight of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Condition, Lock, Thread, main_thread
from typing import NamedTuple
from weakref import WeakSet

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token, is_cancelled
from costada.nodes.context import PerRun
from costada.store.run_store import RunStore

MAX_THREADS = 4096
"""Threads of each executor; they begin when they are needed."""

TICK_SECONDS = 0.5
"""Longest time until a waiting thread notices a cancellation."""

WORK_THREADS = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="costada-call")
"""Threads of model calls and evaluations in flight."""

NODE_THREADS = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="costada-node")
"""Threads of the nodes of asynchronous runs, which asyncio's own executor would cap."""

for _executor in (WORK_THREADS, NODE_THREADS):
    # A forked process inherits no threads, and must not wait for those of its parent.
    os.register_at_fork(
        after_in_child=partial(ThreadPoolExecutor.__init__, _executor, MAX_THREADS, "costada")
    )


class Pool:
    """The tasks in flight of one run, by key.

    A run has one pool in a process, whichever graph object executes it: a second graph on the same
    run finds the calls of the first.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._launched: dict[Hashable, _Launch] = {}
        self._finished: list[Hashable] = []
        self._token = CancellationToken()
        self._when_settled: list[Callable[[], None]] = []

    def launch(self, key: Hashable, work: Callable[[], object]) -> None:
        """Start a task in a thread of its own, unless it is in flight or has ended.

        A task is started again if it was cancelled, or if it failed in an execution of the run that
        was aborted.
        """
        with self._changed:
            known = self._launched.get(key)
            if known and not (
                known.is_interrupted or (known.has_failed and known.token is not self._token)
            ):
                return
            self._forget(key)
            context = copy_context()
            context.run(current_token.set, self._token)
            future = WORK_THREADS.submit(context.run, work)
            self._launched[key] = _Launch(future, self._token)
        # Outside the lock: a future that has ended calls back at once, in this thread.
        future.add_done_callback(partial(self._finish, key))
        _watch_exit(self)

    def wait(self, keys: Collection[Hashable]) -> Hashable:
        """The first of these tasks to end, in the order of ending.

        Raises:
            InterruptedError: The node that waits is cancelled.
        """
        with self._changed:
            while True:
                if is_cancelled():
                    raise InterruptedError("the run was asked to stop")
                for key in (*self._finished, *keys):
                    # what another thread has taken counts as ended; `take` raises for it
                    if key in keys and (key in self._finished or key not in self._launched):
                        return key
                self._changed.wait(TICK_SECONDS)

    def has_to_begin_again(self, key: Hashable) -> bool:
        """Whether a task has ended because of `cancel`."""
        with self._changed:
            known = self._launched.get(key)
            if known is None:
                return False
            return known.token is not self._token and known.is_interrupted

    def take(self, key: Hashable) -> object:
        """The result of a task, which leaves the pool; raises what the task raised.

        Raises:
            InterruptedError: Another thread has taken it, as a cancelled run may that has not
                noticed yet.
        """
        with self._changed:
            taken = self._forget(key)
        if taken is None:
            raise InterruptedError("another thread continues this run")
        return taken.result()

    @property
    def num_in_flight(self) -> int:
        """How many tasks have not ended."""
        with self._changed:
            return len(self._launched) - len(self._finished)

    def cancel(self) -> None:
        """Cancel evaluations and waits; calls in flight end by themselves and are stored."""
        with self._changed:
            self._token.cancel()
            self._token = CancellationToken()  # for what the next execution of the run starts

    def settle(self) -> None:
        """Wait until no task is in flight."""
        with self._changed:
            self._changed.wait_for(self._is_settled)

    def when_settled(self, action: Callable[[], None]) -> None:
        """Call an action once no task is in flight: now, or in the thread of the last one."""
        with self._changed:
            self._when_settled.append(action)
        self._act_if_settled()

    def _is_settled(self) -> bool:
        return len(self._finished) == len(self._launched)

    def _act_if_settled(self) -> None:
        with self._changed:
            actions = self._when_settled if self._is_settled() else []
            if actions:
                self._when_settled = []
        # Outside the lock, as an action may ask the store or a server; each is called once only.
        for action in actions:
            action()

    def _forget(self, key: Hashable) -> Future[object] | None:
        if key in self._finished:
            self._finished.remove(key)
        known = self._launched.pop(key, None)
        return known and known.future

    def _finish(self, key: Hashable, future: Future[object]) -> None:
        with self._changed:
            known = self._launched.get(key)
            # not the end of an earlier task that was launched again under this key
            if known and known.future is future:
                self._finished.append(key)
            self._changed.notify_all()
        self._act_if_settled()


class _Launch(NamedTuple):
    """A submitted task with its cancellation token."""

    future: Future[object]
    token: CancellationToken

    @property
    def is_interrupted(self) -> bool:
        return self.future.done() and isinstance(self.future.exception(), InterruptedError)

    @property
    def has_failed(self) -> bool:
        return self.future.done() and self.future.exception() is not None


_POOLS = PerRun(Pool)
_ACTIVE: WeakSet[Pool] = WeakSet()
_WATCHING = Lock()
_watcher: Thread | None = None


def _forget_inherited() -> None:
    global _ACTIVE, _WATCHING, _watcher
    _ACTIVE, _watcher = WeakSet(), None
    _WATCHING = Lock()  # a thread that does not exist here may have held the old one


os.register_at_fork(after_in_child=_forget_inherited)


def pool_of(store: RunStore, run_id: str) -> Pool:
    """The pool of a run, shared by all that have its run file open in this process."""
    return _POOLS.of(store, run_id)


def _watch_exit(pool: Pool) -> None:
    """Let a thread say what an ending interpreter waits for, as long as tasks are in flight.

    The interpreter joins the executors' threads before it calls `atexit` functions, so that only
    another thread can tell the user why the process does not end, and cancel evaluations.
    """
    global _watcher
    with _WATCHING:
        _ACTIVE.add(pool)
        if _watcher is None or not _watcher.is_alive():
            _watcher = Thread(target=_say_at_exit, name="costada-exit")
            _watcher.start()


def _say_at_exit() -> None:
    global _watcher
    while main_thread().is_alive():
        main_thread().join(TICK_SECONDS)
        with _WATCHING:
            if not any(pool.num_in_flight for pool in _ACTIVE):
                _ACTIVE.clear()
                _watcher = None
                return
    pools = [pool for pool in _ACTIVE if pool.num_in_flight]
    if number := sum(pool.num_in_flight for pool in pools):
        sys.stderr.write(f"costada: waiting for {number} model calls in flight\n")
    for pool in pools:
        pool.cancel()
