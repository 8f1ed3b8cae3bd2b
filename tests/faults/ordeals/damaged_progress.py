"""Progress that is damaged between two runs: the reversal has the same bits, and tells of what it missed."""

import logging
import shutil
from contextlib import suppress

from tests.faults.ordeals.loop import STEPS, SpillingLoop, expected


class StoppedError(Exception):
    """What a caller raises."""


class StoppedLoop(SpillingLoop):
    """A loop that stops after some backward steps."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def backward(self, state, step):
        self.left -= 1
        if self.left < 0:
            raise StoppedError
        super().backward(state, step)

    def resumed(self, folder):
        """Reverse it with progress on the disk."""
        return self.reverse(folder, resume=folder / "progress", adjoint={"image": self.image})


def damage(path, random):
    """Flip, cut, empty, lengthen or remove a file."""
    data = bytearray(path.read_bytes())
    kind = random.randrange(6) if data else 5
    if kind < 3:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == 3:
        del data[random.randrange(len(data)) :]
    elif kind == 4:
        data += b"\0"
    if kind == 5:
        path.unlink()
    else:
        path.write_bytes(data)


def undergo(folder, count, random):
    """Damage the progress of so many reversals."""
    sound, told, said = expected(), {"damaged": 0, "told": 0, "not needed": 0, "wrong": []}, []
    listener = logging.Handler()
    listener.emit = said.append
    logging.getLogger("forebay.engine").addHandler(listener)
    for _ in range(count):
        shutil.rmtree(folder / "progress", ignore_errors=True)
        with suppress(StoppedError):
            StoppedLoop(random.randrange(1, STEPS)).resumed(folder)
        files = [path for path in sorted((folder / "progress").iterdir()) if path.name != "lock"]
        damage(random.choice(files), random)
        told["damaged"] += 1
        said.clear()
        if StoppedLoop(STEPS).resumed(folder) != sound:
            told["wrong"].append("another image")
        told["told" if said else "not needed"] += 1
    return told
