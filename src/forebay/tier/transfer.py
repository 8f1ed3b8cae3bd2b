"""A buffer on its way to or from a file: one task a piece, in the threads of a pool."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from forebay.tasks import ThreadTask, Workers


def run_all(
    pool: Workers,
    tasks: Sequence[Callable[[], None]],
    end: Callable[[BaseException | None], BaseException | None],
) -> ThreadTask[None]:
    """Have threads run tasks, and return the future of their end.

    After an error none is begun any more. At last `end` is handed the first error, if there was one, and returns what
    the future shall raise.
    """
    future: ThreadTask[None] = ThreadTask()
    errors: list[BaseException] = []
    lock, left = threading.Lock(), len(tasks) + 1  # handing them out is one more

    def run(task: Callable[[], None]) -> None:
        if not errors:
            task()

    def count(task: ThreadTask[None]) -> None:
        """Take note of the end of a task, which may never have begun."""
        if (error := task.exception()) is not None:
            errors.append(cancelled() if task.cancelled() else error)
        nonlocal left
        with lock:
            left -= 1
            is_last = not left
        if is_last:
            failure = end(errors[0] if errors else None)
            if failure:
                future.set_exception(failure)
            else:
                future.set_result(None)

    for task in tasks:
        try:
            pool.submit(run, task).add_done_callback(count)
        except RuntimeError:  # the pool was shut down
            late: ThreadTask[None] = ThreadTask()
            late.cancel()
            count(late)
    handed: ThreadTask[None] = ThreadTask()
    handed.set_result(None)
    count(handed)
    return future


def cancelled() -> CancelledError:
    """Return the error of a transfer that came too late."""
    return CancelledError("the disk tier was closed before this transfer had ended")
