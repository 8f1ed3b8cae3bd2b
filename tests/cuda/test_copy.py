import numpy as np
import pytest

from forebay.errors import DeviceError

pytest.importorskip("cuda.core")

from forebay.cuda.copy import copy_async
from forebay.cuda.slab import DeviceSlab


def test_nothing_is_copied_without_asking_the_driver():
    copy_async(0, 0, 0, stream=None)


@pytest.mark.gpu
def test_pageable_memory_works_too(streams):
    sent = np.random.default_rng(0).integers(0, 256, 3_000_001, dtype=np.uint8)
    back = np.zeros_like(sent)
    with DeviceSlab(sent.nbytes) as device:
        copy_async(device.pointer, sent.ctypes.data, sent.nbytes, streams.up)
        streams.down.wait(streams.up.record())
        copy_async(back.ctypes.data, device.pointer, sent.nbytes, streams.down)
        streams.down.sync()
    assert np.array_equal(back, sent)


@pytest.mark.gpu
def test_a_refused_copy_raises(streams):
    with DeviceSlab(4096) as device, pytest.raises(DeviceError, match=r"copying 1\.1TB failed"):
        copy_async(device.pointer, device.pointer + 2048, 1 << 40, streams.up)
