"""Words on their way from the device to the host: sizes and flags that kernels write and the host reads later."""

import threading
from typing import Any

import numpy as np
from cuda.core import Stream
from numpy.typing import NDArray

from penstock.cuda.copy import copy_async
from penstock.cuda.slab import PinnedSlab
from penstock.cuda.stream import Mark

WORDS = 512
"""Words that are pinned at a time; they are used again and again."""

_free: list[NDArray[np.uint64]] = []
_unread: list["tuple[NDArray[np.uint64], Mark]"] = []  # words of letters that nobody opened; they may still arrive
_slabs: list[PinnedSlab] = []
_lock = threading.Lock()


class Letter:
    """A word that arrives when its event passes."""

    def __init__(self, word: NDArray[np.uint64], event: Mark) -> None:
        self._word: NDArray[np.uint64] | None = word
        self._event = event
        self._value = 0

    def arrived(self) -> bool:
        """Tell whether the word can be read without waiting."""
        return self._word is None or bool(self._event.is_done)

    def value(self) -> int:
        """Wait for the word, and give it."""
        with _lock:
            word = self._word
        if word is not None:
            self._event.sync()
            with _lock:
                if self._word is not None:
                    self._value = int(word[0])
                    self._word = None
                    _free.append(word)
        return self._value

    def __del__(self) -> None:
        if self._word is not None:
            _unread.append((self._word, self._event))


def post(pointer: int, stream: Stream) -> Letter:
    """Send the eight bytes at an address on the device, in the order of a stream."""
    with _lock:
        while _unread and _unread[0][1].is_done:
            _free.append(_unread.pop(0)[0])
        if not _free:
            _slabs.append(PinnedSlab(WORDS * 8))
            words: Any = _slabs[-1].array.view(np.uint64)
            _free.extend(words[index : index + 1] for index in range(WORDS))
        word = _free.pop()
    copy_async(word.ctypes.data, pointer, 8, stream)
    return Letter(word, Mark(stream))
