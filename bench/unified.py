"""Unified memory beside each library's own: a training step, an array pipeline, and allocations without a pool.

Every way runs in a process of its own, because torch takes an allocator once: the ways alternate, and the medians are
compared. A model whose parameters were pushed to the host ("pushed") runs with page faults, with `prefetch_hooks`, and
after one prefetch of everything. Nothing here takes more managed memory than the device has free.
"""

from typing import Any

from harness import Report, arg, benchmark, child, median, seconds, steady

LIMIT = 60
"""Seconds that one way may take."""
WAYS = {
    "training": ("native", "unified"),
    "pipeline": ("native", "unified"),
    "pushed": ("resident", "faults", "hooks", "prefetch"),
    "allocation": ("cudaMalloc", "native", "unified", "unpooled"),
}
"""The ways of each task, which is a function of this file; times are told over those of the first."""


@benchmark(
    arg("--tasks", nargs="+", choices=tuple(WAYS), default=list(WAYS)),
    arg("--repeats", type=int, default=3, tiny=1),
    needs=("gpu", "cupy", "torch", "rmm"),
)
def main(asked: Any, report: Report) -> None:
    for task in asked.tasks:
        times: dict[str, list[float]] = {way: [] for way in WAYS[task]}
        for _ in range(asked.repeats):
            for way in WAYS[task]:
                took = child(globals()[task], way, 1 if asked.tiny else 4, timeout=LIMIT)
                if isinstance(took, float):
                    times[way].append(took)
                else:
                    report.fail(f"{task}, {way}: {took['failed']}")
        middle = {way: median(taken) for way, taken in times.items() if taken}
        for way, took in middle.items():
            over = took / middle.get(WAYS[task][0], took)
            report.add({"task": task, "way": way, "seconds": took, "over_first": over, "measured": times[way]})
    report.table("unified memory beside others, medians", "task way seconds:s over_first:.3f")


def training(way: str, size: int) -> float:
    """Time a step of a small transformer."""
    import torch

    unify("torch", way)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0, device="cuda")
    model = torch.nn.TransformerEncoder(layer, 2 * size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(2 * size, 1024, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return steady(step, torch.cuda.synchronize, 20)


def pipeline(way: str, size: int) -> float:
    """Time a chain of array operations with temporaries, as image processing has."""
    import cupy

    unify("cupy", way)
    n = 128 * size
    volume = cupy.random.default_rng(0).random((n, n, n), dtype="float32")

    def step() -> None:
        gradients = [cupy.gradient(volume, axis=axis) for axis in range(3)]
        energy = sum(gradient * gradient for gradient in gradients)
        scaled = (energy - energy.mean()) / energy.std()
        spectrum = cupy.fft.rfft(scaled, axis=2)
        cupy.abs(cupy.fft.irfft(spectrum * 0.5, axis=2)).max()

    return steady(step, cupy.cuda.get_current_stream().synchronize, 50)


def allocation(way: str, size: int) -> float:
    """Time small operations whose every result is a new array."""
    import cupy

    if way == "cudaMalloc":
        cupy.cuda.set_allocator(None)
    else:
        unify("cupy", way)
    array = cupy.ones(1 << 20, "float32")

    def step() -> None:
        for _ in range(100):
            (array * 2 + array).sum()

    return steady(step, cupy.cuda.get_current_stream().synchronize, 5) / 100


def pushed(way: str, size: int) -> float:
    """Time a forward pass of a model whose parameters were pushed to the host before."""
    import torch

    import forebay.memory as fm

    fm.unify("torch")
    torch.manual_seed(0)
    layers = (torch.nn.Linear(4096, 4096, bias=False, device="cuda") for _ in range(8 * size))
    model = torch.nn.Sequential(*layers)
    x = torch.randn(64, 4096, device="cuda")
    if way == "hooks":
        fm.prefetch_hooks(model)

    def move(where: str) -> None:
        for parameter in model.parameters():
            fm.prefetch(parameter, where)

    def forward() -> None:
        if way == "prefetch":
            move("device")
        model(x)
        torch.cuda.synchronize()

    with torch.no_grad():
        for _ in range(2):
            model(x)
        times = []
        for _ in range(3):
            if way != "resident":
                move("host")
            torch.cuda.synchronize()
            times.append(seconds(forward))
    return median(times)


def unify(library: str, way: str) -> None:
    if way != "native":
        import forebay.memory as fm

        fm.unify(library, pool=way == "unified")


if __name__ == "__main__":
    main()
