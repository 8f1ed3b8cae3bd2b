"""Arrays are written as NumPy writes them, from where they lie."""

from io import BytesIO

import numpy as np
import pytest

from forebay.wave.files.npy import parts_of


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, ">f4"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 3, 2), (0, 3)])
def test_the_parts_of_a_file_are_its_bytes(dtype, shape):
    values = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    file = BytesIO()
    np.save(file, values)
    assert b"".join(parts_of(values)) == file.getvalue()
    turned = values.T
    assert np.array_equal(np.load(BytesIO(b"".join(parts_of(turned)))), turned)


def test_values_are_not_copied():
    values = np.arange(6, dtype=np.float32)
    assert np.shares_memory(np.frombuffer(parts_of(values)[1], np.float32), values)
