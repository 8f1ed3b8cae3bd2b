"""Words on their way from the device to the host: sizes and flags that kernels write and the host reads later."""

import ctypes
import threading
from pathlib import Path

import numpy as np
from cuda.bindings import driver
from cuda.core import Stream
from numpy.typing import NDArray

from forebay.cuda.driver import checked
from forebay.cuda.kernels import load
from forebay.cuda.stream import Mark

SOURCE = Path(__file__).parent / "mailbox.cu"
WORDS = 512
"""Words that are pinned at a time; they are used again and again."""

_free: list[NDArray[np.uint64]] = []
_unread: list["tuple[NDArray[np.uint64], Mark]"] = []  # words of letters that nobody opened; they may still arrive
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
        """Wait for the word, and return it."""
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
            _free.extend(_pinned_words())
        word = _free.pop()
    load(SOURCE).launch("post", 1, 8, (pointer, word.ctypes.data), stream)
    return Letter(word, Mark(stream))


def _pinned_words() -> list[NDArray[np.uint64]]:
    """Pin words that every device can write to, at the addresses they have for the host; the process keeps them."""
    flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
    pointer = int(checked(driver.cuMemHostAlloc(WORDS * 8, flags), "pinning words for the device to write"))
    words: NDArray[np.uint64] = np.ctypeslib.as_array((ctypes.c_uint64 * WORDS).from_address(pointer))
    return [words[index : index + 1] for index in range(WORDS)]
