"""Decode damaged encodings on a GPU between addresses that nobody may touch; run as a script, print what came of it.

python -m tests.codec.guarded_gpu CODEC DTYPE SHAPE COUNT [SEED]

Encoding and array each end where their memory ends: whatever reads or writes past them ends the context.
"""

import json
import sys
from random import Random

import numpy as np
from tests.codec.bounds import values
from tests.fuzz.mutation import mutated_bytes

from forebay.codec import get
from forebay.errors import CodecError, EncodingError

ALIGNED = 16
"""Bytes on which an encoding begins."""
BEFORE = 64
"""Bytes before the array that must stay as they are."""


class GuardedMemory:
    """Memory of a GPU with nothing mapped before and behind it."""

    def __init__(self, nbytes):
        from cuda.bindings import driver

        from forebay.cuda.driver import checked

        about = driver.CUmemAllocationProp()
        about.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        about.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        page = int(checked(driver.cuMemGetAllocationGranularity(about, least), "asking for the size of pages"))
        size = -(-nbytes // page) * page
        start = int(checked(driver.cuMemAddressReserve(size + 2 * page, 0, 0, 0), "reserving addresses"))
        memory = checked(driver.cuMemCreate(size, about, 0), "taking memory")
        checked(driver.cuMemMap(start + page, size, 0, memory, 0), "mapping memory")
        access = driver.CUmemAccessDesc()
        access.location = about.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        checked(driver.cuMemSetAccess(start + page, size, [access], 1), "opening memory")
        self.end = start + page + size


def undergo(name, dtype, shape, count, seed):
    """Decode so many damaged encodings; return how many were noticed, and what went wrong."""
    import cupy

    from forebay.codec.device import check_damage, download
    from forebay.cuda.arrays import View
    from forebay.cuda.copy import copy_async
    from forebay.cuda.stream import create_streams

    codec, random, stream = get(name), Random(seed), create_streams().compute
    kinds = ("wave", "special", "noise", "sparse")
    arrays = [cupy.asarray(values(kind, shape, dtype)) for kind in kinds]
    cupy.cuda.get_current_stream().synchronize()
    sound = [codec.encode(array, stream=stream) for array in arrays]
    payloads = [download(each.payload, each.nbytes).tobytes() for each in sound]
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    encodings, decoded = GuardedMemory(2 * max(map(len, payloads)) + 4096), GuardedMemory(nbytes + BEFORE)
    place = decoded.end - nbytes
    out, before = View.at(place, shape, dtype), np.full(BEFORE, 7, np.uint8)
    copy_async(place - BEFORE, before.ctypes.data, BEFORE, stream)
    told = {"tried": 0, "noticed": 0, "wrong": []}
    for number in range(count):
        data = np.frombuffer(mutated_bytes(random.choice(payloads), random) or b"\0", np.uint8)
        pointer = (encodings.end - data.nbytes) // ALIGNED * ALIGNED
        copy_async(pointer, data.ctypes.data, data.nbytes, stream)
        told["tried"] += 1
        try:
            codec.decode_device(View.at(pointer, (data.nbytes,), np.uint8), out, stream)
            check_damage(stream)
        except (EncodingError, CodecError):
            told["noticed"] += 1
        except Exception as error:
            told["wrong"].append(f"input {number}: {error!r}")
            break
    if not told["wrong"]:
        copy_async(before.ctypes.data, place - BEFORE, BEFORE, stream)
        stream.sync()
        if (before != 7).any():
            told["wrong"].append("something was written before the array")
    return told


if __name__ == "__main__":
    lengths = tuple(map(int, sys.argv[3].split(",")))
    print(json.dumps(undergo(sys.argv[1], sys.argv[2], lengths, int(sys.argv[4]), int((*sys.argv[5:], 1)[0]))))
