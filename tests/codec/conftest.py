"""What the tests of codecs on a GPU share: CuPy, and a stream to run on; without a GPU they are skipped."""

import pytest

from forebay.cuda.available import gpu_count, why_not


@pytest.fixture
def cupy():
    if gpu_count() == 0:
        pytest.skip(why_not())
    return pytest.importorskip("cupy")


@pytest.fixture
def stream(cupy):
    from forebay.cuda.stream import create_streams

    return create_streams().compute
