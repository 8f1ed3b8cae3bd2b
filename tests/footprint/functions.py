"""Functions whose memory is known by counting, for the tests to learn."""

import multiprocessing
import subprocess
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

_pools = []


def with_a_pool_that_stays(x):
    """Keep a pool of processes for later calls, which inherits what is open here."""
    if not _pools:
        _pools.append(ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")))
    return x + _pools[0].submit(int, 3).result()


def double(x):
    """One new array."""
    return x + x


def twice_and_back(x):
    """A temporary of four times the input's bytes that is gone before anybody could poll it."""
    wide = np.repeat(x.ravel(), 4)
    return wide[::4].reshape(x.shape).copy()


def where(x):
    """Take one of two new arrays: thirteen bytes an element with the answer and the mask."""
    return np.where(x > 0.5, x * 2, x * 3)


def needs_forty(x):
    """Run only on shapes that a stencil of forty fits into."""
    if min(x.shape) < 40:
        raise ValueError("the stencil needs 40 points")
    return x[20:-20] * 2


def never_runs(x):
    """Refuse everything."""
    raise RuntimeError("no such colour space")


def returns_nothing(x):
    """Work in place."""
    x *= 2


def random_memory(x):
    """Take a temporary whose size is a throw of the dice: another one in every call."""
    room = np.ones(int(x.size * np.random.uniform(1, 20)))
    return x + room[0]


_pool = []


def pooled(x):
    """Take four times its input from a pool of its own, which gives nothing back, as some allocators do."""
    if not _pool or len(_pool[0]) < 4 * x.nbytes:
        _pool[:] = [bytearray(4 * x.nbytes)]
    return x[:1] * 2


_log = []


def leaking(x):
    """Keep a copy of everything it was ever given."""
    _log.append(x.copy())
    return x[:1] * 2


def leaking_in_place(x):
    """Keep as much as it is given, and leave in it what it would refuse."""
    if x.min() < 0:
        raise ValueError("no negative numbers")
    _log.append(x.copy())
    x -= 2
    return x[:1] * 2


_threads = []


def threaded(x):
    """Leave a thread behind that further calls need."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(1))
    return _threads[0].submit(double, x).result()


def _part(size):
    return float(np.ones(size).sum())


def pool_of_processes(x):
    """Have two processes take eight bytes an element each."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return np.array(pool.map(_part, [x.size, x.size]))


def by_programs(x):
    """Run a program, which is looked for in so many folders that the process lives on its parent's pages for long."""
    room = np.ones(10 * x.size)
    for _ in range(3):
        subprocess.run(["true"], env={"PATH": ":".join(["/no"] * 20_000 + ["/bin", "/usr/bin"])}, check=True)
    return x[:1] + room[0]


def raveled(x):
    """Copy what has gaps."""
    return x.ravel().cumsum()


def data_memory(x):
    """Keep what is above a level that the data itself shifts."""
    level = 0.2 if x.ravel()[0] > 0.5 else 0.8
    return np.repeat(x[x > level], 8)[: x.size].sum()


def events(x):
    """Work on the few samples above a level."""
    found = np.flatnonzero(x > 0.5)
    return np.ones((len(found), 16)).sum(axis=1)


def sparse(lengths, rng):
    """Make data with a random share of samples above the level of `events`."""
    return (rng.random(lengths) < rng.uniform(0.05, 0.9)).astype(np.float32)


def correlate(image, kernel):
    """Take two arrays by keyword."""
    return image + kernel.sum()


def product(a, b):
    """Multiply matrices without BLAS, whose own memory grows with them on some machines up to a size."""
    return np.einsum("ik,kj->ij", a, b)


def both(a, b):
    """Take two arrays of one shape."""
    return a + b


def two_alike(lengths, rng):
    """Make them of one dtype."""
    return rng.random(lengths), rng.random(lengths)


def mixed(lengths, rng):
    """Make them, of two dtypes."""
    return rng.random(lengths), np.ones(lengths, dtype=np.int16)


def holds_a_lock():
    """Make a function that cannot be pickled."""
    lock = threading.Lock()
    return lambda x: x if lock else None


def matrices(lengths, rng):
    """Make a pair that fits, from three lengths."""
    m, k, n = lengths
    return rng.random((m, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)


def windowed(x, size=3, fill=0.0):
    """Take a window of so many elements of every row."""
    return np.full((x.shape[0], x.shape[1], size), fill, x.dtype)


def grey(x):
    """Take images of three channels alone."""
    if x.shape[-1] != 3:
        raise ValueError("three channels")
    return x.mean(axis=-1, dtype=x.dtype)


def hadamard(x):
    """Take lengths that are powers of two alone."""
    if x.shape[0] & (x.shape[0] - 1):
        raise ValueError("a power of two")
    return x + x


def placed(x, block_id):
    """Work as a block of Dask that knows its place."""
    return x + x + block_id[0]


def scaled(x, factor):
    """Take an array and a number."""
    return x * factor
