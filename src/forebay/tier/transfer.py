"""One buffer on its way to or from a file, piece by piece in the threads of a pool."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from forebay.tier.space import FilePiece


class Transfer:
    """Begins, moves every piece of a buffer at once, ends, and tells.

    The buffer belongs to it until `future` is done. `move` is handed each piece; `end` is called if it had begun. At
    last `tell` is handed the error, if there was one, and returns what `future` shall raise. All but that may fail in
    any thread; the first error is the one that is told.
    """

    def __init__(
        self,
        move: Callable[[FilePiece], None],
        end: Callable[[], None],
        tell: Callable[[BaseException | None], BaseException | None],
    ) -> None:
        self.future: Future[None] = Future()
        self.future.set_running_or_notify_cancel()  # the kernel may be using the buffer: no cancelling from outside
        self._move, self._end_moving, self._tell = move, end, tell
        self._begun = False
        self._error: BaseException | None = None
        self._tasks = 0
        self._lock = threading.Lock()

    def start(self, pool: ThreadPoolExecutor, begin: Callable[[], Iterable[FilePiece]]) -> None:
        """Hand the work to the threads, and return; `begin` returns the pieces."""
        try:
            self._submit(pool, self._begin, pool, begin)
        except CancelledError as error:
            self.future.set_exception(error)

    def fail(self, error: BaseException) -> None:
        """End a transfer that will not start."""
        self._error = error
        self._end()

    def _submit(self, pool: ThreadPoolExecutor, task: Callable[..., None], *args: object) -> None:
        with self._lock:
            self._tasks += 1
            try:
                pool.submit(self._run, task, *args)
            except RuntimeError as error:  # the pool was shut down, or all are because the interpreter ends
                self._tasks -= 1
                raise cancelled() from error

    def _run(self, task: Callable[..., None], *args: object) -> None:
        try:
            if self._error is None:
                task(*args)
        except BaseException as error:
            self._error = self._error or error
        with self._lock:
            self._tasks -= 1
            last = not self._tasks
        if last:
            self._end()

    def _begin(self, pool: ThreadPoolExecutor, begin: Callable[[], Iterable[FilePiece]]) -> None:
        parts = begin()
        self._begun = True
        for piece in parts:
            self._submit(pool, self._move, piece)

    def _end(self) -> None:
        try:
            if self._begun:
                self._end_moving()
        except OSError as error:
            self._error = self._error or error
        failure = self._tell(self._error)
        if failure:
            self.future.set_exception(failure)
        else:
            self.future.set_result(None)


def cancelled() -> CancelledError:
    """Return the error of a transfer that came too late."""
    return CancelledError("the disk tier was closed before this transfer had ended")
