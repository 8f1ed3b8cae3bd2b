import os
import random
import threading
from importlib.util import find_spec

import numpy as np
import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need on a GPU
collect_ignore_glob = [] if find_spec("torch") else ["*.py", "*/*.py"]


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
