"""A small cluster, in processes of its own as clusters are, shared by all tests of the door."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")
pytest.importorskip("dask.array")

from forebay.footprint.estimate import Estimate  # noqa: E402


@dataclass
class Known:
    """A model that needs no learning: so many bytes a voxel, each axis shorter by `trims` in the result."""

    a_voxel: float = 8.0
    trims: int = 0
    output: str = "float32"
    ndim: int = 3
    dtype: np.dtype = np.dtype("float32")  # noqa: RUF009
    margin: float = 1.5
    seconds: float = 1e-7

    def predict(self, shape):
        volume = math.prod(shape)
        needed = int(self.a_voxel * volume)
        out = tuple(n - self.trims for n in shape)
        return Estimate(needed, int(needed * self.margin), 0.01, out, np.dtype(self.output), self.seconds * volume)


@pytest.fixture
def known():
    return Known


@pytest.fixture(scope="package")  # an idle cluster takes a part of a core
def client():
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, memory_limit="1GB", dashboard_address=":0", resources={"memory": 500e6}
        ) as cluster,
        distributed.Client(cluster) as one,
    ):
        yield one
