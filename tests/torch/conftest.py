import random
import threading

import numpy as np
import pytest


@pytest.fixture
def prefetching():
    """A thread that draws from the generators that all share, as one does that prepares the next batch."""
    ended = threading.Event()

    def draw():
        while not ended.wait(1e-5):
            np.random.rand()
            random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    yield thread
    ended.set()
    thread.join()


@pytest.fixture
def alone(monkeypatch):
    """Have no other thread: those that run tests side by side draw nothing."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)
