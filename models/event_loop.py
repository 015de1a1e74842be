"""The event loop in which a process makes its paid calls, deadlines of calls, and the bridge to it.

One thread runs the loop. What blocks, such as a chat model without an asynchronous path, runs in a
bounded pool of threads, to which LangChain and asyncio turn by themselves.
"""

import asyncio
import atexit
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Any, TypeVar
from weakref import finalize

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase

Result = TypeVar("Result")

MAX_THREADS = 256
"""Threads of the pool; they start when they are needed."""

Close = Callable[[], Coroutine[Any, Any, None]]

_THREAD = local()
"""Has `is_of_pool` in the threads of the pool."""


_KeptTimeout = type("TimeoutError", (TimeoutError,), {})
"""A time-out that asyncio passes on as it is. In place of one of the built-in class itself it
raises a new one, which does not tell whether the model's own code raised it: then nothing was sent.
"""


def _kept(error: BaseException) -> BaseException:
    if type(error) is not TimeoutError:
        return error
    kept: BaseException = _KeptTimeout(*error.args)
    kept.__cause__, kept.__context__ = error.__cause__, error.__context__
    return kept.with_traceback(error.__traceback__)


class ThreadPool(ThreadPoolExecutor):
    """A pool of daemon threads.

    asyncio accepts nothing but a `ThreadPoolExecutor`, whose own threads would keep a process from
    ending while a model hangs, and which takes no work any more once the main thread has ended,
    although calls in flight may need some then.
    """

    def __init__(self) -> None:
        # Without that of the base class: asyncio asks for its type, and nothing of it is used.
        self._pending = SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._counting = Lock()
        self._num_idle, self._num_threads = 0, 0

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Execute a function in a thread of the pool."""
        future: Future[Result] = Future()
        # A lock, as callers of several threads count; the queue alone cannot tell who is idle.
        with self._counting:
            # Taken here, not by the thread when it wakes up: what comes in between needs another.
            if self._num_idle:
                self._num_idle -= 1
            elif self._num_threads < MAX_THREADS:
                self._num_threads += 1
                Thread(target=self._work, name="costada-model", daemon=True).start()
        self._pending.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the threads to the end of the process."""

    def _work(self) -> None:
        _THREAD.is_of_pool = True
        while True:
            future, work = self._pending.get()
            result, error = None, None
            is_wanted = future.set_running_or_notify_cancel()
            if is_wanted:
                try:
                    result = work()
                except BaseException as raised:  # noqa: BLE001 - raised where it is waited for
                    error = _kept(raised)
            # Before the result is known: who waits for it may submit at once, and would otherwise
            # start a thread for each call of a sequence.
            with self._counting:
                self._num_idle += 1
            if error is not None:
                future.set_exception(error)
            elif is_wanted:
                future.set_result(result)
            del future, work, result, error  # an idle thread keeps nothing alive


class PaidLoop:
    """An event loop in a thread of its own, and what has to be closed with it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPool())
        self.closing: dict[finalize[[], Any], Close] = {}
        self.closing_early: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._thread = Thread(target=self._serve, name="costada-calls", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel what is left, close the connections and end the thread.

        Raises:
            Exception: What the first connection raised that could not be closed.
        """
        try:
            with suppress(TimeoutError):
                closing = asyncio.run_coroutine_threadsafe(self._clean_up(), self.loop)
                closing.result(CLOSING_SECONDS)
        finally:
            # Before the stop, as `_serve` runs the loop again otherwise.
            self._is_over = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(CLOSING_SECONDS)
            if not self.loop.is_running():
                self.loop.close()

    def _serve(self) -> None:
        while not self._is_over:
            # asyncio raises these two out of the loop as well as in the task's own caller
            with suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()

    async def _clean_up(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # One that cannot be detached is being closed already, or was.
        left = [close for finalizer, close in self.closing.items() if finalizer.detach()]
        # All of them, whatever one raises, and none waits for another.
        ended = await asyncio.gather(*(close() for close in left), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error


CLOSING_SECONDS = 5.0
"""Longest time that the end of a process waits for its connections to close."""

_STARTING = Lock()
_INHERITED: list[PaidLoop] = []
"""Loops of parent processes. Closing one here, or losing it to the garbage collector, would take
the parent's sockets out of the selector that both share."""

_current: PaidLoop | None = None


def paid_loop() -> PaidLoop:
    """The loop of this process, started when it is first needed."""
    global _current
    with _STARTING:
        if _current is None:
            _current = PaidLoop()
        return _current


def is_paid_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop is the one of this process."""
    return _current is not None and _current.loop is loop


def close_with_loop(owner: object, close: Close) -> None:
    """Close something with the loop, or earlier when its owner is garbage; called in the loop."""
    current = paid_loop()

    def begin() -> None:
        current.closing.pop(finalizer)
        task = current.loop.create_task(close())
        current.closing_early.add(task)
        task.add_done_callback(current.closing_early.discard)

    def close_early() -> None:
        with suppress(RuntimeError):  # the loop is closed, and all with it
            # Garbage may be collected in any thread; tasks are made in that of the loop.
            current.loop.call_soon_threadsafe(begin)

    finalizer = finalize(owner, close_early)
    # At exit the loop closes what is left while it still runs, see `_clean_up`.
    finalizer.atexit = False
    current.closing[finalizer] = close


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in the loop, in a copy of the caller's context, and return its result.

    When the caller is interrupted while it waits, the coroutine is cancelled and has ended by the
    time that this function raises. A thread of the pool runs the coroutine in a loop of its own:
    the threads of the pool must not wait for one another.

    Raises:
        RuntimeError: The caller is a coroutine of the loop, which would wait for itself.
    """
    if getattr(_THREAD, "is_of_pool", False):
        return asyncio.run(coroutine)
    loop, ended, tasks = paid_loop().loop, Future[Result](), list[asyncio.Task[Result]]()
    if _is_running_here(loop):
        coroutine.close()
        raise RuntimeError("a model was called in the event loop of paid calls, expected `ainvoke`")

    def begin() -> None:
        task = loop.create_task(coroutine)
        task.add_done_callback(partial(_pass_on, ended))
        tasks.append(task)

    # The loop calls both in the order in which they were scheduled. Without a task `begin` never
    # will be called: the interruption came before it was scheduled.
    def end() -> None:
        if tasks:
            tasks[0].cancel()
        else:
            coroutine.close()
            ended.set_exception(asyncio.CancelledError())

    try:
        loop.call_soon_threadsafe(begin)
        return ended.result()
    except BaseException:  # an interruption may come before `begin` was scheduled
        if not ended.done():
            loop.call_soon_threadsafe(end)
            wait([ended])
        raise


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _pass_on(ended: Future[Result], task: asyncio.Task[Result]) -> None:
    if task.cancelled():
        ended.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(task.result())


class CallTimeout(TimeoutError):
    """A call was abandoned at its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no complete answer within {seconds:g} seconds")


class _Clock:
    """The clock of a running call; tasks of the call may stop it at the same time."""

    def __init__(self, timer: asyncio.Timeout) -> None:
        self._timer = timer
        self._loop = asyncio.get_running_loop()
        self._left_at_stop, self._num_stops = 0.0, 0
        self._has_ended = False

    @property
    def left(self) -> float:
        """Seconds until the deadline; they stay the same while the clock is stopped."""
        when = self._timer.when()
        return self._left_at_stop if when is None else when - self._loop.time()

    @property
    def _can_move(self) -> bool:
        """Whether the deadline can still move: asyncio raises once it has passed or the call ended.

        A task may outlive its call: a runnable of a user may race two requests.
        """
        return not (self._has_ended or self._timer.expired())

    def stop(self) -> None:
        """Let no time of the call pass."""
        self._num_stops += 1
        if self._num_stops == 1 and self._can_move:
            self._left_at_stop = self.left
            self._timer.reschedule(None)

    def restart(self) -> None:
        """Let time pass again once all who stopped the clock have restarted it."""
        self._num_stops -= 1
        if not self._num_stops and self._can_move:
            self._timer.reschedule(self._loop.time() + self._left_at_stop)

    def end(self) -> None:
        """Leave the deadline where it is: the call is over."""
        self._has_ended = True


_CLOCK: ContextVar[_Clock | None] = ContextVar("costada_clock", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Cancel the block at a deadline.

    Raises:
        CallTimeout: At the deadline.
    """
    try:
        async with asyncio.timeout(seconds) as timer:
            clock = _Clock(timer)
            outer = _CLOCK.set(clock)
            try:
                yield
            finally:
                _CLOCK.reset(outer)
                clock.end()
    except TimeoutError:
        if not timer.expired():
            raise
        raise CallTimeout(seconds) from None


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Wait for something that is not part of the call: its deadline moves by the time it takes."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.stop()
    try:
        yield
    finally:
        clock.restart()


def seconds_left() -> float | None:
    """Seconds until the deadline of the call around it, `None` outside of any."""
    clock = _CLOCK.get()
    return None if clock is None else clock.left


class ModelWrapper(RunnableBindingBase[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """A chat model, perhaps with something bound to it, whose requests a subclass changes.

    A subclass says in `ainvoke` what happens to a request. Streams pass unchanged.
    """

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask what is bound."""
        # LangChain copies and merges configs all the same where it has nothing to merge.
        if self.config or self.config_factories:
            config = self._merge_configs(config)
        answer: AIMessage = await self.bound.ainvoke(input, config, **{**self.kwargs, **kwargs})
        return answer

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Do what `ainvoke` does, in the loop of paid calls."""
        return run(self.ainvoke(input, config, **kwargs))

    # A binding would pass a batch on to what is bound, past `ainvoke`.
    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Ask for each input."""
        return Runnable.batch(self, inputs, config, return_exceptions=return_exceptions, **kwargs)

    async def abatch(
        self,
        inputs: list[LanguageModelInput],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Ask for each input."""
        return await Runnable.abatch(
            self, inputs, config, return_exceptions=return_exceptions, **kwargs
        )


def _forget_inherited() -> None:
    global _current, _STARTING
    _STARTING = Lock()  # a thread that does not exist here may have held the old one
    if _current is not None:
        _INHERITED.append(_current)
        _current = None


def _close_current() -> None:
    if _current is not None:
        _current.close()


os.register_at_fork(after_in_child=_forget_inherited)
atexit.register(_close_current)
