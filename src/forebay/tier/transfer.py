"""One buffer on its way to or from one file, chunk by chunk in the threads of a pool."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from forebay.tier.sectors import CHUNK


class Transfer:
    """Opens a file, moves every chunk of a buffer at once, closes the file, and tells.

    The buffer belongs to it until `future` is done. `move` is handed file descriptor, part and number of each chunk;
    `close_file` the descriptor, if the file was opened. At the end `tell` is handed the error, if there was one, and
    returns what `future` shall raise. All but that may fail in any thread; the first error is the one that is told.
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        move: Callable[[int, NDArray[np.uint8], int], None],
        close_file: Callable[[int], None],
        tell: Callable[[BaseException | None], BaseException | None],
    ) -> None:
        self.future: Future[None] = Future()
        self.future.set_running_or_notify_cancel()  # the kernel may be using the buffer: no cancelling from outside
        self._data, self._move, self._close_file, self._tell = data, move, close_file, tell
        self._fd: int | None = None
        self._error: BaseException | None = None
        self._tasks = 0
        self._lock = threading.Lock()

    def start(self, pool: ThreadPoolExecutor, open_file: Callable[[], int]) -> None:
        """Hand the work to the threads, and return; `open_file` gives the file descriptor."""
        try:
            self._submit(pool, self._open, pool, open_file)
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

    def _open(self, pool: ThreadPoolExecutor, open_file: Callable[[], int]) -> None:
        self._fd = open_file()
        for number, offset in enumerate(range(0, self._data.size, CHUNK)):
            self._submit(pool, self._move, self._fd, self._data[offset : offset + CHUNK], number)

    def _end(self) -> None:
        try:
            if self._fd is not None:
                self._close_file(self._fd)
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
