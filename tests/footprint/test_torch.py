"""Operations of PyTorch on a CPU, whose own allocator may keep what was freed: each sample has a process of its own."""

import sys

import numpy as np
import pytest

from forebay.footprint import learn
from forebay.footprint.measure.inputs import InputLayout, InputRecipe
from forebay.footprint.measure.process import Child, Workload

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks"),
]
torch = pytest.importorskip("torch")


def unfold(x):
    return torch.nn.functional.unfold(torch.as_tensor(x)[None, None], 3)


def conv3d(x):
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):  # that changes its algorithm with the size
        return torch.nn.functional.conv3d(torch.as_tensor(x)[None, None], torch.ones(4, 1, 3, 3, 3))


def attention(x):
    x = torch.as_tensor(x)[None, None]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def softmax(x):
    return torch.softmax(torch.as_tensor(x), -1)


def normalised(x):
    x = torch.as_tensor(x)
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, x.shape[-1:]))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (unfold, (4000, 3000)),
        (conv3d, (250, 220, 240)),
        (attention, (6000, 64)),
        (softmax, (7000, 6000)),
        (normalised, (5000, 8000)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_peaks_of_large_tensors_are_foreseen_to_three_percent(function, shape):
    model = learn(function, ndim=len(shape), shape=shape, seconds=120)
    child = Child(Workload(function, InputRecipe(InputLayout.of(len(shape)), "float32")))
    try:
        child.measure((16,) * len(shape))
        peak = child.measure(shape).host
    finally:
        child.close()
    run = model.predict(shape)
    assert run.bytes == pytest.approx(peak, rel=0.03) and peak <= run.upper
    assert max(np.prod(sample.lengths) for sample in model.samples) <= max(0.05 * np.prod(shape), 2**20)
