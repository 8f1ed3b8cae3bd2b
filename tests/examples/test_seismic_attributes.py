"""Twenty attributes, and the halos that are said to be enough for their blocks."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from seismic_attributes import ATTRIBUTES

from forebay.footprint.reach import Reach, in_blocks

VOLUME = np.random.default_rng(0).standard_normal((36, 37, 130), dtype=np.float32)


def test_there_are_twenty():
    assert len(ATTRIBUTES) == 20


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_blocks_with_the_halo_give_what_the_whole_gives(name):
    attribute = ATTRIBUTES[name]
    result = attribute.func(VOLUME)
    assert result.shape == VOLUME.shape and result.dtype == np.float32 and np.isfinite(result).all()
    blocks = in_blocks(attribute.func, VOLUME, Reach(attribute.depth, attribute.whole))
    assert np.allclose(blocks, result, rtol=0, atol=1e-5 * np.abs(result).max())
