"""Images of shots summed while others are computed: the sum is at the first shot that is not finished yet."""

import logging
import math
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from types import TracebackType

from forebay.errors import CorruptionError
from forebay.tasks import ThreadTask, Workers
from forebay.wave.job.place import leaves
from forebay.wave.job.shots.here import BYTES, held_beside
from forebay.wave.job.stack import PartialImage, TreeSum
from forebay.wave.job.workspace import Workspace

READERS = 4
"""Threads that read images ahead of their sum, once no shot is computed any more."""

logger = logging.getLogger("forebay.wave")


class RunningSum:
    """The sum of a job's images, over its shots in their order; a thread of its own advances it, until it is left.

    What goes wrong there is done again, and told, when the `total` is asked for.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._tree, self._over = workspace, TreeSum(), False
        self._thread = Workers(1, "forebay-sum")

    def __enter__(self) -> "RunningSum":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def advance(self) -> None:
        """Have the images added that are finished, where the plan for all shots leaves room for it."""
        if not self._over and room_for_sums(self._workspace):
            self._thread.submit(self._advance)

    def total(self, chosen: set[int], failed: dict[int, str]) -> PartialImage | None:
        """Return the sum of those shots that were chosen; add to `failed` what turns out to be damaged.

        It goes on from where it is, or begins anew where others were added.
        """
        self._end()
        if not chosen.issuperset(range(self._tree.count)):
            self._tree = TreeSum()
        for image in _images(self._workspace, self._tree.count, chosen, failed):
            self._tree.take(image)
        total: PartialImage | None = self._tree.total()
        return total

    def _advance(self) -> None:
        """Add images up to the first shot that is not there."""
        workspace = self._workspace
        try:
            while not self._over and (shot := self._tree.count) < workspace.geometry.count:
                if shot in workspace.damaged or not workspace.path(shot).exists():
                    return
                self._tree.take(workspace.part(shot))
        except Exception:
            logger.info("images are summed when all shots are computed", exc_info=True)
            self._tree, self._over = TreeSum(), True

    def _end(self) -> None:
        self._over = True
        self._thread.close(cancel=True)


def room_for_sums(workspace: Workspace) -> bool:
    """Tell whether the plan for all shots leaves room for sums, beside what is read ahead and written behind.

    Sums cover the whole model at most, and are one more than the tree is high while two are added.
    """
    plan, geometry = workspace.plan(), workspace.geometry
    if plan is None:
        return False
    sums = geometry.count.bit_length() + 2
    nbytes = BYTES * 2 * sums * math.prod(workspace.described.grid.shape)
    return leaves(plan, "host", nbytes + held_beside(workspace))


def _images(
    workspace: Workspace, first: int, chosen: set[int], failed: dict[int, str]
) -> Iterator[PartialImage | None]:
    """Read the images of shots in their order, some of them ahead by other threads; None where one is not summed."""
    coming: deque[ThreadTask[PartialImage | None] | None] = deque()
    with closing(Workers(READERS, "forebay-stack")) as readers:
        for shot in range(first, workspace.geometry.count):
            coming.append(readers.submit(_image_of, workspace, shot, failed) if shot in chosen else None)
            while len(coming) > READERS or (coming and shot == workspace.geometry.count - 1):
                image = coming.popleft()
                yield None if image is None else image.result()


def _image_of(workspace: Workspace, shot: int, failed: dict[int, str]) -> PartialImage | None:
    """Read the image of a shot; add it to `failed` where it was damaged since this run began."""
    try:
        return workspace.part(shot)
    except CorruptionError as error:
        failed[shot] = str(error)
        return None
