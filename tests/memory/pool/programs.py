"""Programs of uses that tests run on a pool and on plain arrays, to compare every value that comes out."""

import random
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

import forebay as fb
from forebay.codec import Codec
from forebay.errors import EncodingError
from forebay.machine.virtual import VirtualPool
from forebay.memory.pool import coding
from forebay.memory.pool.pool import Pool


@dataclass(frozen=True)
class Step:
    """One use, by numbers of arrays; `get` reads an array on the host, `renew` drops one and puts another.

    `replace` drops one and takes an empty one, whose first values the use writes.
    """

    reads: tuple = ()
    writes: tuple = ()
    overwrites: tuple = ()
    get: int | None = None
    renew: int | None = None
    replace: int | None = None


@dataclass(frozen=True)
class Program:
    """Arrays of given lengths, and what is done with them."""

    lengths: tuple
    steps: tuple


class Trimmed(Codec):
    """Exact, and of a size that is known only afterwards: the bytes up to the last that is not zero."""

    name = "trimmed"

    def max_bytes(self, shape, dtype):
        return 8 + int(np.prod(shape)) * dtype.itemsize

    def encode_host(self, array, out):
        data = np.trim_zeros(np.ascontiguousarray(array).reshape(-1).view(np.uint8), "b")
        out[:8] = np.array([8 + data.nbytes], np.uint64).view(np.uint8)
        out[8 : 8 + data.nbytes] = data
        return 8 + data.nbytes

    def decode_host(self, payload, out):
        if payload[:8].view(np.uint64)[0] != payload.nbytes:
            raise EncodingError("these bytes are no encoding")
        out.reshape(-1).view(np.uint8)[:] = 0
        out.reshape(-1).view(np.uint8)[: payload.nbytes - 8] = payload[8:]


def sweeps(count, length, rounds, kind):
    steps = {
        "read": [Step(reads=(number,)) for number in range(count)],
        "write": [Step(writes=(number,)) for number in range(count)],
        "chain": [Step(reads=(number,), overwrites=((number + 1) % count,)) for number in range(count)],
        "there and back": [Step(writes=(n,)) for n in (*range(count), *reversed(range(count)))],
        "looked at": [step for n in range(count) for step in (Step(writes=(n,)), Step(get=n))],
        "looked at ahead": [step for n in range(count) for step in (Step(reads=(n,)), Step(get=(n + 1) % count))],
        "renewed": [step for n in range(count) for step in (Step(writes=(n,)), Step(renew=(n - 3) % count))],
        "replaced": [
            step
            for n in range(count)
            for step in (Step(reads=(n,)), Step(reads=((n + 2) % count,), overwrites=(n,), replace=n))
        ],
        "pairs": [Step(reads=(n,), writes=((n + 1) % count,)) for n in range(count)],
    }[kind]
    return Program((length,) * count, tuple(steps) * rounds)


def at_random(seed, count=8, steps=40):
    generator = random.Random(seed)
    lengths = tuple(generator.choice((30, 60, 90, 120)) for _ in range(count))
    done = []
    loop = [_random_step(generator, count) for _ in range(generator.randrange(2, 9))]
    while len(done) < steps:
        if generator.random() < 0.6:
            done += loop
        else:
            done.append(_random_step(generator, count))
    return Program(lengths, tuple(done))


def _random_step(generator, count):
    kind = generator.random()
    if kind < 0.08:
        return Step(get=generator.randrange(count))
    if kind < 0.16:
        return Step(renew=generator.randrange(count))
    chosen = generator.sample(range(count), generator.randrange(1, 4))
    cuts = sorted(generator.choices(range(len(chosen) + 1), k=2))
    return Step(tuple(chosen[: cuts[0]]), tuple(chosen[cuts[0] : cuts[1]]), tuple(chosen[cuts[1] :]))


def compute(step, number, reads, writes, overwrites):
    """Make every value that is written depend on every value that is read."""
    total = number + sum(float(array.sum()) for array in (*reads, *writes)) % 97
    for array in writes:
        array *= 0.5
        array += total
    for offset, array in enumerate(overwrites):
        array[:] = np.arange(array.size) * 0.25 + total + offset
    return total


def initial(lengths):
    generator = np.random.default_rng(0)
    return [np.round(generator.standard_normal(length) * 64) / 64 for length in lengths]


def expected(program, kept=lambda array: array):
    """Run a program on plain arrays."""
    arrays, seen = initial(program.lengths), []
    for number, step in enumerate(program.steps):
        if step.get is not None:
            seen.append(arrays[step.get].tolist())
        elif step.renew is not None:
            arrays[step.renew] = np.full(program.lengths[step.renew], number / 8)
        else:
            groups = [[arrays[n] for n in group] for group in (step.reads, step.writes, step.overwrites)]
            seen.append(compute(step, number, *groups))
    return seen, [array.tolist() for array in arrays]


def run(program, device, seed=0, without=None, codec=None, host=10**7, machine=None):
    """Run a program on a pool, and give what it saw, its last values, and the pool; codecs may be given in turns."""
    machine = machine or VirtualPool(seed, without)
    pool = Pool(fb.Budget(device=device, host=host), None, machine)
    turns = codec if isinstance(codec, tuple) else (codec,)

    def put(number, array):
        return pool.put(array, codec=turns[number % len(turns)])

    with patch.object(coding, "SHARE", 1 if seed % 2 else 4):  # two rooms each way for encodings, or one
        arrays, seen = [put(number, array) for number, array in enumerate(initial(program.lengths))], []
    for number, step in enumerate(program.steps):
        if step.get is not None:
            seen.append(pool.get(arrays[step.get]).tolist())
        elif step.renew is not None:
            arrays[step.renew] = None
            arrays[step.renew] = put(step.renew, np.full(program.lengths[step.renew], number / 8))
        else:
            if step.replace is not None:
                arrays[step.replace] = None
                codec_of = turns[step.replace % len(turns)]
                arrays[step.replace] = pool.empty(program.lengths[step.replace], np.float64, codec=codec_of)
            given = [[arrays[n] for n in group] for group in (step.reads, step.writes, step.overwrites)]
            with pool.use(*given) as handed:
                cut = len(step.reads), len(step.reads) + len(step.writes)
                seen.append(compute(step, number, handed[: cut[0]], handed[cut[0] : cut[1]], handed[cut[1] :]))
    pool.wait()
    return seen, [pool.get(array).tolist() for array in arrays], pool
