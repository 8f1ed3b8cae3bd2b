"""Tasks for threads of ours, which stay whole where a signal raises in the middle of a call.

Ctrl-C raises between any two calls of the main thread. The locks that futures and executors of Python stand on may then
stay taken for ever, since `threading.Condition` takes them in a function of Python, and whoever needs one hangs. What
is here holds plain locks alone, which `with` takes and lets go of without anything between.
"""

import logging
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from forebay.errors import EngineError

T = TypeVar("T")

logger = logging.getLogger("forebay.tasks")


class ThreadTask(Generic[T]):
    """What a thread will have done, or whoever sets its result; it has the methods of a future.

    Examples
    --------
    >>> task = ThreadTask(lambda: 6 * 7)
    >>> task.run()
    >>> task.result()
    42
    """

    def __init__(self, call: Callable[[], T] | None = None) -> None:
        self._call, self._begun, self._over = call, False, False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[ThreadTask[T]], Any]] = []
        self._lock, self._gate = threading.Lock(), threading.Lock()
        self._gate.acquire()  # open once it is over

    def run(self) -> None:
        """Do it, unless it was cancelled."""
        with self._lock:
            if self._over:
                return
            self._begun = True
        call, self._call = self._call, None  # what it holds goes with it
        assert call is not None
        try:
            value = call()
        except BaseException as error:
            self.set_exception(error)
            self = None  # type: ignore[assignment]  # the frames of the error would hold it, and it holds the error
        else:
            self.set_result(value)

    def set_result(self, value: T) -> None:
        """End it with a value."""
        self._end(value, None)

    def set_exception(self, error: BaseException) -> None:
        """End it with an error."""
        self._end(None, error)

    def cancel(self) -> bool:
        """End it, unless it has begun; return whether nobody does it."""
        if not self._begun and not self._over:
            self._end(None, CancelledError())
        return self.cancelled()

    def cancelled(self) -> bool:
        """Tell whether nobody does it."""
        return not self._begun and isinstance(self._error, CancelledError)

    def done(self) -> bool:
        """Tell whether it is over."""
        return self._over

    def exception(self) -> BaseException | None:
        """Wait, and return its error, if it has one."""
        if not self._over:
            with self._gate:  # and let the next one through
                pass
        return self._error

    def result(self) -> T:
        """Wait, and return its value, or raise its error."""
        if (error := self.exception()) is None:
            return self._value  # type: ignore[no-any-return]
        try:
            raise error
        finally:
            error = self = None  # type: ignore[assignment]  # as above

    def add_done_callback(self, call: "Callable[[ThreadTask[T]], Any]") -> None:
        """Call something with it once it is over, in the thread that ends it, or at once."""
        with self._lock:
            if not self._over:
                self._callbacks.append(call)
                return
        call(self)

    def _end(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._over:
                return
            self._value, self._error, self._over = value, error, True
            self._gate.release()
        callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            try:
                call(self)
            except Exception:
                logger.exception("a callback of a task failed")


class Workers:
    """Threads that run tasks in the order they are given; each is started when all others are busy.

    Parameters
    ----------
    count
        The most threads.
    name
        How their names begin.
    begin
        What each calls first; what that raises, all of its tasks raise.
    """

    def __init__(self, count: int, name: str, begin: Callable[[], Any] = lambda: None) -> None:
        self._count, self._name, self._begin, self._closed = count, name, begin, False
        self._queue: SimpleQueue[ThreadTask[Any] | None] = SimpleQueue()
        self._given: dict[int, ThreadTask[Any]] = {}  # what is in the queue: what one takes out may be lost on the way
        self._idle: SimpleQueue[None] = SimpleQueue()
        self._threads: list[WorkerThread] = []
        # Not at the end of the process: whoever closes something then may need the threads.
        weakref.finalize(self, _dismiss, self._queue, count).atexit = False

    def submit(self, call: Callable[..., T], *arguments: Any) -> ThreadTask[T]:
        """Have a thread call something."""
        if self._closed:
            raise RuntimeError("no thread works here any more")
        task = ThreadTask(partial(call, *arguments))
        self._given[id(task)] = task
        self._queue.put(task)
        try:
            self._idle.get_nowait()
        except Empty:
            self._threads = [thread for thread in self._threads if not thread.failed]
            if len(self._threads) < self._count:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(WorkerThread(name, self._queue, self._given, self._idle, self._begin))
        for thread in self._threads:
            thread.start()
        return task

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        """Have the threads end after what they were given, or cancel that; again is no harm."""
        self._closed = True
        for task in list(self._given.values()) if cancel else ():
            task.cancel()
        _dismiss(self._queue, len(self._threads))
        for thread in self._threads:
            thread.start()
        for thread in self._threads if wait else ():
            thread.join()


def at_once(calls: Sequence[Callable[[], object]], most: int, name: str) -> None:
    """Make calls in at most so many threads, and return when all have ended; raise what the first to fail raised.

    Examples
    --------
    >>> sums = {}
    >>> at_once([lambda n=n: sums.update({n: sum(range(n))}) for n in (3, 4)], most=2, name="sums")
    >>> sorted(sums.items())
    [(3, 3), (4, 6)]
    """
    if min(most, len(calls)) < 2:
        for call in calls:
            call()
        return
    workers = Workers(min(most, len(calls)), name)
    try:
        for task in [workers.submit(call) for call in calls]:
            task.result()
    finally:
        workers.close(cancel=True)


class WorkerThread:
    """A thread that runs tasks; whoever is interrupted on the way to its start has it started later."""

    def __init__(
        self,
        name: str,
        queue: "SimpleQueue[ThreadTask[Any] | None]",
        given: dict[int, ThreadTask[Any]],
        idle: "SimpleQueue[None]",
        begin: Callable[[], Any],
    ) -> None:
        self.failed = False
        """whether the system did not start it"""
        self._given, self._asked = given, False
        self._claim, self._ended = threading.Lock(), threading.Lock()
        self._ended.acquire()
        # Whoever lets go of it without closing it is not kept from ending.
        work = partial(_work, queue, given, idle, begin, self._ended)
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    def start(self) -> None:
        """Ask for it, unless somebody has who knows that he did."""
        if self._asked:
            return
        try:  # `start` waits for the thread's first word on a condition: not where signals raise
            start_new_thread(self._start, ())
        except RuntimeError as error:
            self._fail(error)
        self._asked = True

    def _start(self) -> None:
        """Start it once, however often it was asked for; where the system does not, the tasks that wait for it fail."""
        if self._claim.acquire(blocking=False):
            try:
                self._thread.start()
            except RuntimeError as error:
                self._fail(error)

    def _fail(self, cause: RuntimeError) -> None:
        """Fail what waits for a thread that the system does not start."""
        self.failed = True
        error = EngineError(f"the system starts no more threads ({cause}): end others, or raise the limit (ulimit -u)")
        for task in list(self._given.values()):
            task.set_exception(error)
        self._ended.release()

    def join(self) -> None:
        """Wait until it has ended."""
        with self._ended:
            pass
        if self._thread.ident is not None:
            self._thread.join()


def _work(
    queue: "SimpleQueue[ThreadTask[Any] | None]",
    given: dict[int, ThreadTask[Any]],
    idle: "SimpleQueue[None]",
    begin: Callable[[], Any],
    ended: threading.Lock,
) -> None:
    """Run tasks until there is a None among them."""
    failure: BaseException | None = None
    try:
        begin()
    except BaseException as error:
        failure = error
    while True:
        try:
            task = queue.get_nowait()
        except Empty:
            idle.put(None)
            task = queue.get()
        if task is None:
            break
        given.pop(id(task), None)
        if failure is None:
            task.run()
        else:
            task.set_exception(failure)
        del task
    ended.release()


def _dismiss(queue: "SimpleQueue[ThreadTask[Any] | None]", count: int) -> None:
    for _ in range(count):
        queue.put(None)
