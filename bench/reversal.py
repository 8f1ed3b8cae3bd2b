"""The reversal of a 3-D acoustic loop on a GPU: Forebay's plans beside synchronous copies, measured in one run.

Every schedule is carried out with (a) blocking copies to pageable memory, (b) blocking copies to pinned memory, which
is GPUZIP's baseline, (c) the policy "lru", which does as GPUZIP does, and (d) the policy "min". They are set beside
(e) the limit: the schedule's steps and copies inside the device, at the costs measured in the same run, and nothing
else. Last comes what "auto" chooses within the same budget. All of them must make the same image, bit by bit.

Run ``python bench/reversal.py``: takes 96 GB of host memory and about six minutes on an H200, prints tables, writes
``bench/out/reversal.json`` after every row. ``--long`` reverses 3751 steps instead, with (b) and (d) of Revolve and
"auto" alone; ``--tiny`` is over in seconds.
"""

import argparse
import hashlib
import json
import math
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import forebay as fb
from forebay.engine.layout import Layout
from forebay.schedule import Backward, Drop, Forward, Restore, Save, Schedule
from forebay.units import seconds_to_text, to_text

SOURCE = Path(__file__).parent / "acoustic.cu"
RADIUS = 4  # of the stencil, as in the source
VARIANTS = ((16, 16, 2, 4), (16, 16, 3, 4), (32, 8, 2, 4), (32, 8, 3, 4), (32, 16, 1, 4))
"""Shapes of the kernels to choose from by time: threads in x and y, blocks on a multiprocessor, blocks along z."""
FEWEST_RESTORES = 8
"""Restores that a prefix of a schedule contains, so that what is left of it can be extrapolated."""

State = tuple[Any, Any]
console = Console(width=160, soft_wrap=True)


@dataclass(frozen=True)
class Setting:
    """What is reversed, and in how much memory."""

    shape: tuple[int, int, int]
    steps: int
    revolve: int
    """snapshots of Revolve"""
    slots: int
    """snapshots on the device"""
    host: int
    """bytes on the host"""
    patience: float
    """seconds of a pageable row after which it is cut off"""


@dataclass
class Row:
    """What was measured of one way to carry a schedule out; `seconds` counts the whole reversal."""

    steps: int
    schedule: str
    way: str
    seconds: float
    actions: int
    extrapolated_from: int | None = None
    """first actions that were timed, where not all of them were"""
    timed_seconds: float | None = None
    """of those first actions"""
    copies: dict[str, dict[str, float]] | None = None
    """count and mean seconds of the blocking copies"""
    wall_seconds: float | None = None
    """of the whole call on the host's clock, with planning and allocation"""
    predicted_seconds: float | None = None
    measured_over_predicted: float | None = None
    stall_seconds: float | None = None
    predicted_stall_seconds: float | None = None
    phases: dict[str, dict[str, float]] | None = None
    """seconds of each phase of the computation, predicted and measured"""
    moves: dict[str, dict[str, float]] | None = None
    """count, mean and longest seconds of the movements of each link, from the timeline"""
    late: int | None = None
    """restores that waited for their fetch"""
    up: int | None = None
    """snapshots that came from the host"""
    down: int | None = None
    peak_device_bytes: int | None = None
    """taken from the device above what was taken before the call"""
    allowed_device_bytes: int | None = None
    """the budget and one working state"""
    image: str | None = None
    """a hash of the image's bytes"""


class Loop:
    """A wave that is advanced in place, and the adjoint wave and the image that its reversal makes."""

    def __init__(self, shape: tuple[int, int, int], steps: int) -> None:
        import cupy

        self.cupy, self.shape = cupy, shape
        nz, ny, nx = shape
        z, y, x = (cupy.sin(cupy.arange(extent, dtype="float32") * 0.11) for extent in shape)
        field = 0.1 * z[:, None, None] * y[None, :, None] * x[None, None, :]
        for axis in range(3):
            edge = cupy.moveaxis(field, axis, 0)
            edge[:RADIUS] = edge[-RADIUS:] = 0
        self.start: State = (field, field * cupy.float32(0.9))
        self.adjoint: State = (cupy.empty_like(field), cupy.empty_like(field))
        self.image = cupy.empty_like(field)
        depth = cupy.linspace(0.06, 0.1, nz, dtype="float32")  # (velocity dt / h)^2; stable below 0.2
        self.speed = cupy.ascontiguousarray(cupy.broadcast_to(depth[:, None, None], shape))
        times = np.pi * 0.03 * (np.arange(steps) - 40)
        self.wavelet = ((1 - 2 * times**2) * np.exp(-(times**2))).astype(np.float32)
        self.source = np.int32((nz // 2 * ny + ny // 2) * (nx // 4) + nx // 8)
        self.receiver = np.int32((nz // 4 * ny + ny // 3) * (nx // 4) + nx // 8)
        self.layout = Layout.of(self.start, lambda array: (array.shape, array.dtype))
        self.initial = self.hashed(*self.start)
        self.variant = self._fastest()

    @property
    def snapshot(self) -> int:
        """Bytes of a snapshot."""
        return self.layout.nbytes

    @property
    def points(self) -> int:
        """Points that a step computes."""
        return math.prod(extent - 2 * RADIUS for extent in self.shape)

    def forward(self, state: State, start: int, stop: int) -> State:
        """Advance in place; the two fields change roles at every step."""
        p, old = state
        for step in range(start, stop):
            self._advance(
                self._grid, self._block, (p, old, self.speed, *self._extents, self.source, self.wavelet[step])
            )
            p, old = old, p
        return p, old

    def backward(self, state: State, step: int) -> None:
        """Advance the adjoint wave and correlate it with the forward one."""
        q, old = self.adjoint
        fields = (q, old, self.speed, state[0], self.image)
        self._advance_and_image(self._grid, self._block, (*fields, *self._extents, self.receiver, self.wavelet[step]))
        self.adjoint = old, q

    def reset(self) -> None:
        """Make the adjoint wave and the image what they are before a reversal."""
        for array, first in zip(self.adjoint, self.start, strict=True):
            array[...] = first
        self.image.fill(0)

    def working(self) -> State:
        """Copy the initial state."""
        p, old = self.start
        return p.copy(), old.copy()

    def hashed(self, *arrays: Any) -> str:
        """Give a hash of the bytes of arrays."""
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(array.get())
        return digest.hexdigest()

    def wait(self) -> None:
        """Wait for the stream."""
        self.cupy.cuda.get_current_stream().synchronize()

    def seconds(self, call: Callable[[], Any], repeats: int = 5) -> float:
        """Time work on the device, after a first call that is not counted."""
        call()
        taken = []
        for _ in range(repeats):
            start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            taken.append(self.cupy.cuda.get_elapsed_time(start, stop) / 1e3)
        return statistics.median(taken)

    def forward_seconds(self, steps: int = 20) -> float:
        """Time a forward step."""
        steps = min(steps, len(self.wavelet))
        state = self.working()
        return self.seconds(lambda: self.forward(state, 0, steps)) / steps

    def backward_seconds(self, steps: int = 20) -> float:
        """Time a backward step."""
        steps = min(steps, len(self.wavelet))
        return self.seconds(lambda: [self.backward(self.start, step) for step in range(steps)]) / steps

    def free_memory(self) -> int:
        """Give the free bytes of the device."""
        return int(self.cupy.cuda.runtime.memGetInfo()[0])

    def let_go(self) -> None:
        """Have CuPy's pool give back what nothing uses."""
        self.wait()
        self.cupy.get_default_memory_pool().free_all_blocks()

    def _fastest(self) -> tuple[int, ...]:
        taken = {}
        for variant in VARIANTS:
            self._compile(variant)
            self.reset()
            taken[variant] = self.forward_seconds(6) + self.backward_seconds(6)
        fastest = min(taken, key=lambda variant: taken[variant])
        self._compile(fastest)
        return fastest

    def _compile(self, variant: tuple[int, ...]) -> None:
        block_x, block_y, blocks, deep = variant
        defines = {"BLOCK_X": block_x, "BLOCK_Y": block_y, "BLOCKS": blocks}
        options = tuple(f"-D{name}={value}" for name, value in defines.items())
        module = self.cupy.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=options)
        self._advance = module.get_function("advance")
        self._advance_and_image = module.get_function("advance_and_image")
        nz, ny, nx = self.shape
        chunk = -(-(nz - 2 * RADIUS) // deep)
        self._block = (block_x, block_y, 1)
        self._grid = (-(-(nx // 4 - 2) // block_x), -(-(ny - 2 * RADIUS) // block_y), deep)
        self._extents = tuple(map(np.int32, (nz, ny, nx // 4, chunk)))


class Report:
    """What is known so far: printed at once, and written after every row."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about, self.rows = path, about, list[Row]()
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Take a row."""
        self.rows.append(row)
        console.print(f"n={row.steps} {row.schedule:<14} {row.way:<9} {cell(row)}")
        self.write()

    def write(self) -> None:
        """Write all there is."""
        self.path.write_text(json.dumps(self.about | {"rows": [asdict(row) for row in self.rows]}, indent=2) + "\n")

    def find(self, schedule: str, way: str) -> Row | None:
        """Give a row."""
        return next((row for row in self.rows if (row.schedule, row.way) == (schedule, way)), None)


def main() -> None:
    arguments = parse()
    begun = time.perf_counter()
    from forebay.cuda.available import why_not

    if reason := why_not():
        sys.exit(reason)
    small = arguments.tiny
    steps = arguments.steps or (60 if small else 3751 if arguments.long else 1000)
    shape = (64, 64, 64) if small else (310, 676, 676)
    loop = Loop(shape, steps)
    host = 20 * loop.snapshot if small else fb.Budget(host=arguments.host)["host"]
    setting = Setting(shape, steps, min(8, steps), 6, host, arguments.patience)
    budget = fb.Budget(device=setting.slots * loop.snapshot, host=setting.host)
    name = "reversal" + "-tiny" * small + "-long" * arguments.long + ".json"
    report = Report(arguments.output or Path(__file__).parent / "out" / name, about(setting, loop))
    costs = measure(loop, report)
    compare(loop, setting, budget, costs, report, brief=arguments.long)
    report.about["overhead"] = overhead(steps, setting.revolve, setting.slots)
    wrong = report.about["mismatches"] = mismatches(loop, report)
    report.about["seconds"] = time.perf_counter() - begun
    report.write()
    show(report)
    for line in wrong:
        console.print(f"[bold white on red] MISMATCH [/] {line}")
    console.print(f"all of it took {seconds_to_text(report.about['seconds'])}; written to {report.path}")
    sys.exit(1 if wrong else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, help="steps of the loop, 1000 otherwise")
    parser.add_argument("--long", action="store_true", help="3751 steps; pinned copies and min of Revolve, and auto")
    parser.add_argument("--tiny", action="store_true", help="a small grid and few steps, to see that it works")
    parser.add_argument("--host", default="96GB", help="host memory for snapshots")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds after which a pageable row is cut off")
    parser.add_argument("--output", type=Path, help="JSON file to write, bench/out/reversal.json otherwise")
    return parser.parse_args()


def about(setting: Setting, loop: Loop) -> dict[str, Any]:
    from forebay.cuda.driver import describe_gpus

    return {
        "command": " ".join(sys.argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": asdict(describe_gpus()[0]),
        "machine": platform.platform(),
        "versions": {"python": platform.python_version(), "forebay": fb.__version__}
        | {"cupy": loop.cupy.__version__, "cuda-core": version("cuda-core"), "numpy": np.__version__},
        "setting": asdict(setting) | {"snapshot_bytes": loop.snapshot, "kernel_variant": loop.variant},
    }


def measure(loop: Loop, report: Report) -> fb.Costs:
    """Time a step each way, a copy on the device and the link, once for all rows."""
    from forebay.cuda.slab import kept_pinned

    forward, backward = loop.forward_seconds(), loop.backward_seconds()
    nbytes, runtime = loop.snapshot, loop.cupy.cuda.runtime
    one, other = loop.cupy.zeros(nbytes, "uint8"), loop.cupy.zeros(nbytes, "uint8")

    def copies(pairs: Iterable[tuple[int, int]]) -> Callable[[], None]:
        def call() -> None:
            for target, source in pairs:
                stream = loop.cupy.cuda.get_current_stream().ptr
                runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDefault, stream)

        return call

    device, spare = one.data.ptr, other.data.ptr
    copy = loop.seconds(copies([(spare, device), (device, spare)])) / 2
    with kept_pinned(4 * nbytes) as slab:
        places = [slab.pointer + index * nbytes for index in range(4)]
        up = loop.seconds(copies([(device, place) for place in places])) / 4
        down = loop.seconds(copies([(place, device) for place in places])) / 4
    del one, other
    loop.let_go()
    # Pinning is timed beside the rows, not planned for: the slab is kept, and the shots of a survey share it.
    costs = fb.Costs(forward, backward, nbytes / copy, fb.Link(up=nbytes / up, down=nbytes / down))
    report.about["costs"] = asdict(costs)
    table = Table("", "seconds", "rate", title=f"costs, state of {to_text(nbytes)}, kernel variant {loop.variant}")
    table.add_row("forward step", seconds_to_text(forward), f"{loop.points / forward / 1e9:.1f} Gpoint/s")
    table.add_row("backward step", seconds_to_text(backward), f"{loop.points / backward / 1e9:.1f} Gpoint/s")
    for what, taken in {"copy on the device": copy, "pinned, up": up, "pinned, down": down}.items():
        table.add_row(what, seconds_to_text(taken), f"{nbytes / taken / 1e9:.1f} GB/s")
    console.print(table)
    return costs


def compare(loop: Loop, setting: Setting, budget: fb.Budget, costs: fb.Costs, report: Report, *, brief: bool) -> None:
    """Measure every row; `brief` leaves out all but pinned copies and min of Revolve, and auto."""
    from forebay.cuda.slab import kept_pinned

    steps, nbytes = setting.steps, loop.snapshot
    schedules: list[Schedule] = [fb.Revolve(steps, setting.revolve)]
    if not brief:
        families = (fb.ZCut, fb.Uniform)
        schedules += filter(None, (most(family, setting, nbytes, budget, costs) for family in families))
    rooms = max(schedule.peak_snapshots for schedule in schedules)
    if not brief:
        pageable = touched(rooms, nbytes)
        for schedule in schedules:
            report.add(blocking(loop, schedule, "pageable", pageable, costs, setting.patience))
        del pageable  # it and the pinned slab together are more than the machine has
    auto = fb.plan(steps, nbytes, budget, costs=costs)
    rooms = max([rooms, *auto.prediction.peak[1:]])
    begun = time.perf_counter()
    with kept_pinned(rooms * nbytes) as slab:
        pinning = time.perf_counter() - begun
        report.about["pinning"] = {"bytes": rooms * nbytes, "seconds": pinning}
        console.print(f"pinning {to_text(rooms * nbytes)} took {seconds_to_text(pinning)}; it is in no row")
        pinned = [slab.array[index * nbytes : (index + 1) * nbytes] for index in range(rooms)]
        for schedule in schedules:
            report.add(blocking(loop, schedule, "pinned", pinned, costs))
        del pinned
    # The slab is kept by the process: the reversals below find it.
    for schedule in schedules:
        for policy in ("min",) if brief else ("lru", "min"):
            report.add(planned(loop, setting, schedule, policy, policy, budget, costs))
        report.add(limit(schedule, costs, nbytes))
    report.add(planned(loop, setting, "auto", "min", "auto", budget, costs))
    report.add(limit(auto.schedule, costs, nbytes))


def most(
    family: Callable[[int, int], Schedule], setting: Setting, nbytes: int, budget: fb.Budget, costs: fb.Costs
) -> Schedule | None:
    """Give a family's schedule of the most snapshots that fit in every way: without a cache, and with either policy."""
    rooms = setting.host // nbytes
    for snapshots in range(min(setting.steps, setting.slots + rooms), 0, -1):
        try:
            schedule = family(setting.steps, snapshots)
            if schedule.peak_snapshots <= rooms:
                for policy in ("lru", "min"):
                    fb.plan(setting.steps, nbytes, budget, costs=costs, schedule=schedule, policy=policy)
                return schedule
        except fb.BudgetError:
            continue
        except fb.ScheduleError as error:
            console.print(f"left out: {error}")
            return None
    return None


def touched(rooms: int, nbytes: int) -> list[NDArray[np.uint8]]:
    """Allocate pageable memory of which every page is there."""
    arrays = [np.empty(nbytes, np.uint8) for _ in range(rooms)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda array: array.fill(0), arrays))
    return arrays


def blocking(
    loop: Loop,
    schedule: Schedule,
    way: str,
    rooms: Sequence[NDArray[np.uint8]],
    costs: fb.Costs,
    patience: float = math.inf,
) -> Row:
    """Carry a schedule out as it stands: each save a blocking copy to the host, each restore one from it.

    After `patience` seconds it is cut off, and the rest is extrapolated: steps as measured before, copies as here.
    """
    runtime = loop.cupy.cuda.runtime
    free = [room.ctypes.data for room in rooms]
    held: dict[int, int] = {}
    spent: dict[str, list[float]] = {"save": [], "restore": []}
    loop.reset()
    state = loop.working()
    loop.wait()

    def copied(what: str, place: int) -> None:
        loop.wait()  # the copy would do so itself, but its time is wanted alone
        start = time.perf_counter()
        for leaf, array in zip(loop.layout.leaves, state, strict=True):
            there, here = place + leaf.offset, array.data.ptr
            if what == "save":
                runtime.memcpy(there, here, leaf.nbytes, runtime.memcpyDeviceToHost)
            else:
                runtime.memcpy(here, there, leaf.nbytes, runtime.memcpyHostToDevice)
        spent[what].append(time.perf_counter() - start)

    actions = list(schedule)
    done = 0
    begun = time.perf_counter()
    for action in actions:
        if time.perf_counter() - begun > patience and len(spent["restore"]) >= FEWEST_RESTORES:
            break
        match action:
            case Forward(start, stop):
                state = loop.forward(state, start, stop)
            case Save(step):
                held[step] = free.pop()
                copied("save", held[step])
            case Restore(step):
                copied("restore", held[step])
            case Drop(step):
                free.append(held.pop(step))
            case Backward(step):
                loop.backward(state, step)
        done += 1
    loop.wait()
    timed = time.perf_counter() - begun
    means = {what: statistics.mean(taken) for what, taken in spent.items()}
    row = Row(schedule.steps, str(schedule), way, timed, len(actions))
    row.copies = {what: {"count": len(taken), "mean_seconds": means[what]} for what, taken in spent.items()}
    if done < len(actions):
        left = counted(actions[done:])
        row.extrapolated_from, row.timed_seconds = done, timed
        row.seconds += left["forward"] * costs.forward + left["backward"] * costs.backward
        row.seconds += sum(left[what] * means[what] for what in means)
    else:
        row.image = loop.hashed(loop.image)
    return row


def counted(actions: Sequence[Any]) -> Counter[str]:
    """Count forward steps, backward steps, saves, restores, and those restores that a swap can do."""
    count: Counter[str] = Counter()
    for action, following in pairwise([*actions, None]):
        match action:
            case Forward(start, stop):
                count["forward"] += stop - start
            case Backward():
                count["backward"] += 1
            case Save():
                count["save"] += 1
            case Restore(step):
                count["restore"] += 1
                count["swap"] += following == Drop(step) and isinstance(following, Drop)
    return count


def limit(schedule: Schedule, costs: fb.Costs, nbytes: int) -> Row:
    """Compute what a schedule takes if nothing is ever waited for: its steps, and its copies inside the device."""
    count = counted(list(schedule))
    copies = count["save"] + count["restore"] - count["swap"]
    seconds = count["forward"] * costs.forward + count["backward"] * costs.backward + copies * nbytes / costs.copy
    return Row(schedule.steps, str(schedule), "limit", seconds, len(schedule))


def planned(
    loop: Loop,
    setting: Setting,
    schedule: Schedule | str,
    policy: str,
    way: str,
    budget: fb.Budget,
    costs: fb.Costs,
) -> Row:
    """Let Forebay carry a schedule out."""
    steps, nbytes = setting.steps, loop.snapshot
    looks = {steps - 1, 3 * steps // 4, steps // 2, steps // 4, 0}
    loop.reset()
    loop.let_go()
    before = least = loop.free_memory()

    def backward(state: State, step: int) -> None:
        nonlocal least
        loop.backward(state, step)
        if step in looks:
            least = min(least, loop.free_memory())

    begun = time.perf_counter()
    result = fb.reverse(
        loop.forward,
        backward,
        loop.start,
        steps,
        budget=budget,
        schedule=schedule,
        policy=policy,
        costs=costs,
        progress=False,
    )
    loop.wait()
    wall = time.perf_counter() - begun
    metrics, prediction = result.metrics, result.plan.prediction
    return Row(
        steps,
        str(result.plan.schedule),
        way,
        metrics.seconds,
        len(result.plan.schedule),
        wall_seconds=wall,
        predicted_seconds=prediction.seconds,
        measured_over_predicted=metrics.seconds / prediction.seconds,
        stall_seconds=metrics.phases["stall"],
        predicted_stall_seconds=prediction.stall,
        phases={
            phase: {"predicted": getattr(prediction, phase), "measured": metrics.phases[phase]}
            for phase in ("forward", "backward", "save", "restore", "stall")
        },
        moves=moves(metrics.timeline),
        late=metrics.late,
        up=metrics.moved["up 1"] // nbytes,
        down=metrics.moved["down 1"] // nbytes,
        peak_device_bytes=before - least,
        allowed_device_bytes=budget["device"] + nbytes,
        image=loop.hashed(loop.image),
    )


def moves(timeline: Iterable[Any]) -> dict[str, dict[str, float]]:
    """Count and time the movements of each link."""
    taken: dict[str, list[float]] = {}
    for span in timeline:
        if span.lane != "compute":
            taken.setdefault(span.lane, []).append(span.stop - span.start)
    return {
        lane: {"count": len(times), "mean_seconds": statistics.mean(times), "longest_seconds": max(times)}
        for lane, times in taken.items()
    }


def overhead(steps: int, snapshots: int, slots: int) -> dict[str, float]:
    """Time the engine alone: the same schedule on a state of 8 kB, with callbacks that do nothing."""
    import cupy

    state = (cupy.zeros(1024, "float32"), cupy.zeros(1024, "float32"))
    nbytes = Layout.of(state, lambda array: (array.shape, array.dtype)).nbytes
    budget = fb.Budget(device=slots * nbytes, host=snapshots * nbytes)
    costs = fb.Costs(1e-6, 1e-6, 1e9, fb.Link(1e9, 1e9))

    def shortest(length: int) -> tuple[float, int]:
        plan = fb.plan(length, nbytes, budget, costs=costs, schedule=fb.Revolve(length, min(length, snapshots)))
        taken = []
        for _ in range(4):
            begun = time.perf_counter()
            fb.reverse(lambda s, start, stop: s, lambda s, step: None, state, length, plan=plan, progress=False)
            taken.append(time.perf_counter() - begun)
        return min(taken), len(plan.operations())

    seconds, operations = shortest(steps)
    return {
        "operations": operations,
        "seconds": seconds,
        "microseconds_per_operation": seconds / operations * 1e6,
        "seconds_of_one_step": shortest(1)[0],
    }


def mismatches(loop: Loop, report: Report) -> list[str]:
    """List what is not bit-equal, or could not show it: an image that is empty or not finite."""
    images: dict[str, list[str]] = {}
    for row in report.rows:
        if row.image is not None:
            images.setdefault(row.image, []).append(f"{row.schedule} {row.way}")
    wrong = []
    if len(images) > 1:
        wrong += [f"n={report.rows[0].steps}: image {image} by {', '.join(by)}" for image, by in images.items()]
    if loop.hashed(*loop.start) != loop.initial:
        wrong.append("a reversal changed the caller's initial state")
    largest = float(abs(loop.image).max())
    report.about["image_maximum"] = largest
    if not 0 < largest < math.inf:
        wrong.append(f"the image's largest value is {largest}: it shows nothing")
    return wrong


def cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.extrapolated_from is None:
        return seconds_to_text(row.seconds)
    first = f"first {row.extrapolated_from} of {row.actions} actions: {seconds_to_text(row.timed_seconds or 0)}"
    return f"~{seconds_to_text(row.seconds)} extrapolated ({first})"


def over(one: Row | None, other: Row | None) -> str:
    return f"{one.seconds / other.seconds:.3f}" if one is not None and other is not None else ""


def show(report: Report) -> None:
    first = report.rows[0].schedule
    ways = ("pageable", "pinned", "lru", "min", "auto", "limit")
    titles = ("(a) pageable", "(b) pinned", "(c) lru", "(d) min", "auto", "(e) limit")
    table = Table(
        "schedule", *titles, "b / ours", "c / d", "ours / e", title=f"reversal of {report.rows[0].steps} steps"
    )
    for name in dict.fromkeys(row.schedule for row in report.rows):
        rows = {way: report.find(name, way) for way in ways}
        ours = rows["min"] or rows["auto"]
        # What auto chose has no baseline of its own: it is set beside Revolve's.
        pinned = rows["pinned"] or report.find(first, "pinned")
        of = "" if rows["pinned"] else f" (b of {first})"
        ratios = (over(pinned, ours) + of * (ours is not None), over(rows["lru"], ours), over(ours, rows["limit"]))
        table.add_row(name, *(cell(rows[way]) for way in ways), *ratios)
    console.print(table)
    details = Table(
        *("schedule", "way", "measured", "predicted", "ratio", "stall", "predicted", "late", "up", "down"),
        *("device peak", "allowed", "above", "wall"),
        title="what Forebay predicted, and what it did",
    )
    for row in report.rows:
        if row.predicted_seconds is not None:
            above = (row.peak_device_bytes or 0) - (row.allowed_device_bytes or 0)
            details.add_row(
                row.schedule,
                row.way,
                seconds_to_text(row.seconds),
                seconds_to_text(row.predicted_seconds),
                f"{row.measured_over_predicted:.3f}",
                seconds_to_text(row.stall_seconds or 0),
                seconds_to_text(row.predicted_stall_seconds or 0),
                str(row.late),
                str(row.up),
                str(row.down),
                to_text(row.peak_device_bytes or 0),
                to_text(row.allowed_device_bytes or 0),
                f"[red]{to_text(above)}[/]" if above > 0 else "",
                seconds_to_text(row.wall_seconds or 0),
            )
    console.print(details)
    engine = report.about["overhead"]
    console.print(
        f"engine alone: {engine['microseconds_per_operation']:.1f} us an operation "
        f"({engine['operations']} operations), "
        f"{seconds_to_text(engine['seconds_of_one_step'])} for a reversal of one step"
    )


if __name__ == "__main__":
    main()
