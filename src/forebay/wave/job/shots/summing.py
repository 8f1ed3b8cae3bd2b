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
        self._near: dict[int, PartialImage] = {}
        """the image that was written last, by its shot, until it is added: it need not be read"""
        self._thread = Workers(1, "forebay-sum")

    def __enter__(self) -> "RunningSum":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def advance(self, shot: int | None = None, image: PartialImage | None = None) -> None:
        """Have the images added that are finished, where the plan for all shots leaves room for it.

        The image of a shot that was taken just now need not be read, where it is given.
        """
        if not self._over and room_for_sums(self._workspace):
            if shot is not None and image is not None and not self._near:
                self._near[shot] = image
            self._thread.submit(self._advance)

    def total(self, chosen: set[int], failed: dict[int, str]) -> PartialImage | None:
        """Return the sum of those shots that were chosen; add to `failed` what turns out to be damaged.

        It goes on from where it is, or begins anew where others were added.
        """
        self._end()
        if not chosen.issuperset(range(self._tree.count)):
            self._tree = TreeSum()
        for image in self._images(chosen, failed):
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
                self._tree.take(self._image(shot))
        except Exception:
            logger.info("images are summed when all shots are computed", exc_info=True)
            self._tree, self._over = TreeSum(), True

    def _image(self, shot: int) -> PartialImage:
        """Return the image of a finished shot, as it was written just now or from its file, which must be whole."""
        if (near := self._near.pop(shot, None)) is None:
            return self._workspace.part(shot)
        self._workspace.sound(shot)
        return near

    def _images(self, chosen: set[int], failed: dict[int, str]) -> Iterator[PartialImage | None]:
        """Return the images that are left, some of them read ahead by other threads; None where one is not summed."""
        first, count = self._tree.count, self._workspace.geometry.count
        coming: deque[ThreadTask[PartialImage | None] | None] = deque()
        with closing(Workers(READERS, "forebay-stack")) as readers:
            for shot in range(first, count):
                coming.append(readers.submit(self._image_or_none, shot, failed) if shot in chosen else None)
                while len(coming) > READERS or (coming and shot == count - 1):
                    image = coming.popleft()
                    yield None if image is None else image.result()

    def _image_or_none(self, shot: int, failed: dict[int, str]) -> PartialImage | None:
        """Return the image of a shot; add it to `failed` where it was damaged since this run began."""
        try:
            return self._image(shot)
        except CorruptionError as error:
            failed[shot] = str(error)
            return None

    def _end(self) -> None:
        self._over = True
        self._thread.close(cancel=True)


def room_for_sums(workspace: Workspace) -> bool:
    """Tell whether the plan for all shots leaves room for sums, beside what is read ahead and written behind.

    Sums cover the whole model at most, and are one more than the tree is high while some are added. One image waits.
    """
    plan, geometry = workspace.plan(), workspace.geometry
    if plan is None:
        return False
    sums = geometry.count.bit_length() + 3
    nbytes = BYTES * 2 * sums * math.prod(workspace.described.grid.shape)
    return leaves(plan, "host", nbytes + held_beside(workspace))
