"""Loops on a GPU: the same bits as plain autograd, on the device, the host and the disk, and on the right streams."""

import gc

import pytest
import torch

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.torch import checkpointed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_count(), reason="no GPU")]
STEPS = 60


def wave(state, t, source, speed, damping):
    now, before, count = state
    laplacian = torch.roll(now, 1) + torch.roll(now, -1) - 2 * now
    new = 2 * now - before + speed * laplacian + (speed * now).sin() * damping
    new = new * (1 - damping) + 0.01 * speed + source * (count % 3)
    return (new, now, count + 1), (new[::2], new)


def problem(points, dtype=torch.float32):
    torch.manual_seed(points)
    state = (
        torch.randn(points, device="cuda", dtype=dtype).requires_grad_(),
        torch.randn(points, device="cuda", dtype=dtype),
        torch.zeros((), dtype=torch.int64, device="cuda"),
    )
    inputs = torch.randn(STEPS, points, device="cuda", dtype=dtype).requires_grad_()
    speed = (0.1 * torch.randn(points, device="cuda", dtype=dtype)).abs().requires_grad_()
    return state, inputs, (speed, torch.tensor(0.03, dtype=dtype, device="cuda", requires_grad=True))


def loss_of(state, outputs):
    return (state[0] ** 2).sum() + state[1].sin().sum() + sum((output**3).sum() for output in outputs)


def written_out(state, inputs, params):
    outputs = []
    for t in range(STEPS):
        state, output = wave(state, t, inputs[t], *params)
        outputs.append(output)
    return state, tuple(torch.stack(leaves) for leaves in zip(*outputs, strict=True))


@pytest.mark.parametrize("points", [1000, 1_000_000])
@pytest.mark.parametrize(
    ("schedule", "chunk", "tiers"),
    [
        ("storeall", 1, (80, 0, 0)),
        ("revolve:5", 1, (8, 0, 0)),
        ("storeall", 1, (4, 80, 0)),
        ("storeall", 4, (24, 80, 0)),
        ("twolevel:8,3", 1, (5, 40, 0)),
        ("storeall", 1, (3, 6, 80)),
        ("auto", None, (12, 80, 0)),
    ],
)
def test_bit_equal_to_plain_autograd(points, schedule, chunk, tiers, tmp_path):
    state, inputs, params = problem(points)
    wanted_state, wanted_outputs = written_out(state, inputs, params)
    leaves = (state[0], inputs, *params)
    wanted = torch.autograd.grad(loss_of(wanted_state, wanted_outputs), leaves)
    snapshot = (-(-points * 4 // 4096) + 1) * 4096 * 2
    device, host, disk = (count * snapshot or None for count in tiers)
    results = []
    for _ in range(2):
        final, outputs = checkpointed(
            wave,
            state,
            STEPS,
            inputs=inputs,
            params=params,
            outputs=True,
            budget=fb.Budget(device=device, host=host, disk=disk),
            schedule=schedule,
            chunk=chunk,
            directory=tmp_path,
            report=results.append,
        )
        found = torch.autograd.grad(loss_of(final, outputs), leaves)
        pairs = zip((*final, *outputs, *found), (*wanted_state, *wanted_outputs, *wanted), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    for result in results:
        assert result.metrics.peak["device"] <= device


def test_on_a_stream_of_the_callers_and_several_at_once():
    state, inputs, params = problem(200_000)
    leaves = (state[0], inputs, *params)
    torch.cuda.synchronize()
    wanted = torch.autograd.grad(loss_of(*written_out(state, inputs, params)), leaves)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        loops = [
            checkpointed(
                wave,
                state,
                STEPS,
                inputs=inputs,
                params=params,
                outputs=True,
                budget=fb.Budget(device="30MB", host="200MB"),
                schedule="storeall",
                chunk=2,
            )
            for _ in range(3)
        ]
        assert torch.cuda.current_stream() == stream
        for final, outputs in reversed(loops):
            found = torch.autograd.grad(loss_of(final, outputs), leaves)
            assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
        assert torch.cuda.current_stream() == stream


def test_through_backward_with_dropout_and_autocast():
    layer = torch.nn.Linear(256, 256, device="cuda")
    start = torch.randn(64, 256, device="cuda")

    def step(y, t, layer):
        return torch.dropout((y + layer(y).float()) * 0.5, 0.2, True)

    def run(loop):
        layer.zero_grad()
        torch.manual_seed(3)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = loop().square().sum()
        loss.backward()
        return loss.detach(), layer.weight.grad.clone(), layer.bias.grad.clone()

    def plain():
        y = start
        for t in range(20):
            y = step(y, t, layer)
        return y

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        wanted = run(plain)
        for chunk, schedule in ((1, "revolve:4"), (5, "storeall")):
            got = run(
                lambda chunk=chunk, schedule=schedule: checkpointed(
                    step, start, 20, params=layer, budget=fb.Budget(device="4MB"), schedule=schedule, chunk=chunk
                )
            )
            assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_is_dropped_gives_its_device_memory_back(monkeypatch):
    from forebay.cuda import slab as cuda

    slabs = []

    class Noted(cuda.DeviceSlab):
        def __init__(self, nbytes):
            super().__init__(nbytes)
            slabs.append(self)

    def taken():
        return sum(slab.nbytes for slab in slabs if slab.pointer)

    monkeypatch.setattr(cuda, "DeviceSlab", Noted)
    weight = torch.randn(1_000_000, device="cuda", requires_grad=True)
    start = torch.ones(1_000_000, device="cuda")

    def run():
        return checkpointed(
            lambda y, t, weight: torch.sin(y * weight),
            start,
            100,
            params=weight,
            budget="450MB",
            schedule="storeall",
            chunk=1,
        )

    run().sum().backward()
    assert slabs and not taken()
    waiting = run()
    assert taken() > 300e6
    del waiting
    gc.collect()
    assert not taken()


def test_a_lossy_codec_keeps_close():
    weight = torch.rand(1_000_000, device="cuda", requires_grad=True)
    start = torch.linspace(0, 1, 1_000_000, device="cuda")

    def run(codec, budget):
        final = checkpointed(
            lambda y, t, weight: y + 0.01 * torch.sin(y * weight),
            start,
            40,
            params=weight,
            budget=budget,
            schedule="storeall",
            chunk=1,
            codec=codec,
        )
        return torch.autograd.grad(final.sum(), weight)[0]

    exact, rounded = run(None, "170MB"), run("bounded:1e-4", "120MB")
    assert 0 < (exact - rounded).abs().max() <= 1e-2 * exact.abs().max()
