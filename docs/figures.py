"""The figures of the pages: drawn from plans and from what benchmarks wrote, by `python -m docs.figures`.

Those of plans are predicted for a machine that `forebay.planner` knows, so that they are the same everywhere.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import forebay as fb
from forebay.drawing import Chart, Series, Subplot
from forebay.drawing.bars import bars_chart
from forebay.planner.choose import operations_of
from forebay.planner.drawn.timeline import COLOURS, memory_chart, timeline_chart
from forebay.planner.trace import moved
from forebay.schedule import Hierarchical, Level

PICTURES = Path(__file__).parent / "pictures"
DATA = Path(__file__).parent / "results" / "data"
INKS = ("#2b7bba", "#d9572b", "#3d8f5f", "#7a5fa8", "#e3a008", "#8a8f98")
STATE = "1.13GB"
"""Of the loop that most figures are of: two fields of 310 x 676 x 676 points."""
SMALL = {"steps": 60, "state_bytes": STATE, "machine": "h200"}
"""Few enough steps that each can be seen."""


def still(chart: Chart) -> Chart:
    """Return a chart without what is told where something points, which no picture can show."""
    return replace(chart, panels=[replace(panel, tips=()) for panel in chart.panels])


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str, top: float = 0.0) -> Chart:
    """Draw a line for each name, from its points."""
    marks = [Series(name, ink, [line], width=2.0) for (name, line), ink in zip(lines.items(), INKS, strict=False)]
    points = [point for line in lines.values() for point in line]
    most = top or 1.08 * max(y for _, y in points)
    return Chart([Subplot(marks, up, most, height=260)], across, max(x for x, _ in points))


def bars(rows: Mapping[str, Mapping[str, float]], across: str, up: str, inks: Mapping[str, str] | None = None) -> Chart:
    """Draw a bar for each row, its parts one on top of the other."""
    parts = list(dict.fromkeys(name for row in rows.values() for name in row))
    heights = {part: [row.get(part, 0.0) for row in rows.values()] for part in parts}
    return bars_chart(heights, list(rows), across, up, inks or dict(zip(parts, INKS, strict=False)))


def steps_of(schedule: str, device: str, host: str | None = None, disk: str | None = None, **more: Any) -> Chart:
    """Draw the steps and the lanes of a short loop by a schedule."""
    plan = fb.plan(**SMALL, budget=fb.Budget(device=device, host=host, disk=disk), schedule=schedule, **more)
    return still(timeline_chart(plan, plan.timeline()))


def repeated() -> Chart:
    """Draw how often a loop of 1000 steps is run forward, by the snapshots that are kept."""
    families: dict[str, tuple[Callable[[int, int], Any], Sequence[int]]] = {
        "Revolve": (fb.Revolve, [*range(3, 40), *range(40, 201, 8)]),
        "zCut": (fb.ZCut, range(64, 201, 4)),
        "uniform": (fb.Uniform, range(32, 201, 4)),
    }
    lines = {
        name: [(float(count), family(1000, count).forward_steps / 1000) for count in counts]
        for name, (family, counts) in families.items()
    }
    return curves(lines, "snapshots", "times over the loop")


def policies() -> Chart:
    """Draw how many snapshots move between device and host by each policy, for slots of the device."""
    slots = [2, 3, 4, 5, 6, 7]
    lines = {}
    for policy, name in (("lru", "the least recently used leaves"), ("min", "the farthest next use leaves")):
        counts = [sum(moved(operations_of(fb.Revolve(1000, 8), (slot, 8), policy), tier=1)) for slot in slots]
        lines[name] = [(float(slot), float(count)) for slot, count in zip(slots, counts, strict=True)]
    return curves(lines, "slots of the device, of 8 snapshots", "snapshots moved")


def seconds_by_device() -> Chart:
    """Draw the predicted seconds of 1000 steps by the bytes of the device: Revolve, segments, and all that is tried."""
    ways: dict[str, dict[str, Any]] = {
        "Revolve, lru": {"schedule": "revolve:8", "policy": "lru"},
        "Revolve, min": {"schedule": "revolve:8"},
        "segments": {"schedule": "twolevel"},
        "auto": {"schedule": "auto"},
    }
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for gigabytes in range(3, 13):
        for name, way in ways.items():
            budget = fb.Budget(device=f"{gigabytes}GB", host="48GB")
            plan = fb.plan(1000, STATE, budget, machine="h200", reversals=100, **way)
            lines[name].append((float(gigabytes), plan.seconds))
    return curves(lines, "GB of the device, beside 48 GB of the host", "seconds", 14.0)


def phases_by_device() -> Chart:
    """Draw where the seconds of a plan go, by the device's bytes."""
    rows = {}
    for gigabytes in range(2, 13):
        budget = fb.Budget(device=f"{gigabytes}GB", host="48GB")
        plan = fb.plan(1000, STATE, budget, machine="h200", reversals=100)
        first = plan.costs.forward * plan.steps
        parts = {"forward": first, "recomputed": plan.prediction.forward - first, "backward": plan.prediction.backward}
        parts |= {name: getattr(plan.prediction, name) for name in ("save", "restore", "stall")}
        rows[str(gigabytes)] = parts
    return bars(rows, "GB of the device, beside 48 GB of the host", "seconds", COLOURS | {"recomputed": "#e3a008"})


def seconds_by_ratio() -> Chart:
    """Draw the predicted seconds by how much smaller a codec makes states and records."""
    budget, ratios = fb.Budget(device="6GB", host="48GB"), [1.0, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    link = fb.Link(up=55e9, down=55e9)
    lines: dict[str, list[tuple[float, float]]] = {"states": [], "records of half a state": []}
    for ratio in ratios:
        codec = fb.CodecCost(ratio=ratio, encode=1.4e12, decode=2.2e12)
        costs = fb.Costs(0.00078, 0.00138, 2e12, host=link, codecs={"bounded:0.001": codec})
        for name, more in (("states", {}), ("records of half a state", {"record_bytes": "0.565GB"})):
            plan = fb.plan(1000, STATE, budget, costs=costs, reversals=100, codec="bounded:0.001", **more)
            lines[name].append((ratio, plan.seconds))
    return curves(lines, "times smaller", "seconds")


def steps_by_price() -> Chart:
    """Draw how often levels run a loop of 1000 steps forward and how much they save, by the price of a save."""
    prices = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    times, saves = "times over the loop", "saves beyond the first level, of 100 steps"
    lines: dict[str, list[tuple[float, float]]] = {times: [], saves: []}
    for price in prices:
        schedule = Hierarchical(1000, (Level(4), Level(40, price)))
        lines[times].append((price, schedule.forward_steps / 1000))
        lines[saves].append((price, schedule.priced_saves / 10))
    return curves(lines, "price of a save beyond the first level, in forward steps", "")


def measured(name: str) -> list[dict[str, Any]]:
    """Return the rows that a benchmark wrote."""
    return list(json.loads((DATA / f"{name}.json").read_text())["rows"])


def reversal() -> Chart:
    """Draw measured seconds of reversals on a GPU."""
    rows = [row for row in measured("reversal-1000") if row["way"] != "limit"]
    names = {"pinned": "blocking copies", "min": "min", "segments": "segments", "auto": "auto"}
    return bars(
        {names[row["way"]]: {"device": row["seconds"], "beside it": row["wall"] - row["seconds"]} for row in rows},
        "way to reverse 1000 steps within six states of an H200 and 48 GB of its host",
        "seconds by the clock",
    )


def codecs() -> Chart:
    """Draw measured ratios of codecs on a GPU."""
    rows = [row for row in measured("codecs") if row["bound"] == 1e-3 and row["field"] in ("early", "middle", "late")]
    return bars(
        {f"{row['field']} {row['codec']}": {row["codec"]: row["ratio"]} for row in rows},
        "wavefield and codec, errors within 1e-3 of its range",
        "times smaller",
    )


def codec_speeds() -> Chart:
    """Draw measured speeds of codecs on a GPU."""
    rows = [row for row in measured("codecs") if row["bound"] == 1e-3 and row["field"] in ("early", "middle", "late")]
    return bars(
        {f"{row['field']} {row['codec']}": {row["codec"]: row["compress"] / 1000} for row in rows},
        "wavefield and codec, errors within 1e-3 of its range",
        "TB/s compressing",
    )


def encoded() -> Chart:
    """Draw measured seconds of reversals with a codec and without."""
    rows = {f"{row['field']}, {row['codec']}": row for row in measured("encoded")}  # the last of each is warm
    return bars(
        {name: {"device": row["seconds"], "beside it": row["wall"] - row["seconds"]} for name, row in rows.items()},
        "field, and codec of 1000 steps within six states of an H200 and 60 GB of its host",
        "seconds by the clock",
    )


def pool() -> Chart:
    """Draw measured speeds of sweeps through a pool."""
    rows = [row for row in measured("pool") if "bounded" not in row["way"] and row["sweep"] == "read"]
    return bars(
        {row["way"]: {"GB/s": row["used_GBps"]} for row in rows},
        "way to read three times as much as the device's budget, round by round",
        "GB/s used",
    )


def history() -> Chart:
    """Draw measured costs of a history that is kept."""
    rows = [row for row in measured("rtm-history") + measured("rtm-every") if row.get("cost")]  # the latest of each
    return bars(
        {
            f"{row['codec']}, every {row['every']}": {
                "nothing kept": row["nothing"],
                "history": row["seconds"] - row["nothing"],
            }
            for row in rows
        },
        "codec, and steps between two images",
        "seconds of a shot",
    )


def waves(physics: str) -> Chart:
    """Draw measured speeds of steps of waves on a GPU."""
    rows = [row for row in measured("rtm-steps") if row.get("physics") == physics and row["absorb"] in (0, 20)]
    about = {f"{row['way']}, {row['absorb'] or 'no'} layers": row for row in rows if row["points"] == [512, 512, 512]}
    return bars(
        {name: {physics: row["Gpoints"]} for name, row in about.items()},
        f"step of {physics} waves at 512 x 512 x 512 points, and points of its layers",
        "Gpoint/s",
    )


def clock() -> Chart:
    """Draw measured seconds around calls on a GPU."""
    rows = [row for row in measured("rtm-steps") if row["table"] == "clock"]
    return bars(
        {row["call"]: {"device": row["device"], "beside it": row["wall"] - row["device"]} for row in rows},
        "call, 400 x 400 x 400 points and 200 steps",
        "seconds by the clock",
    )


def footprints() -> Chart:
    """Draw how far measured peaks of other people's functions are below their bounds."""
    overs = sorted(min(held["over"], 3.0) for row in measured("footprint-public") for held in row["held"])
    line = [(100 * number / (len(overs) - 1), 100 * over) for number, over in enumerate(overs)]
    return curves({"bound over the measured peak": line}, "% of the points", "% above", 310.0)


def schedules() -> Chart:
    """Draw measured speeds of streams of actions."""
    rows = [row for row in measured("schedules") if row.get("steps") == 1000]
    return bars(
        {row["schedule"]: {"actions": row["per_second"] / 1e3} for row in rows},
        "schedule of 1000 steps with 20 snapshots",
        "thousand actions a second",
    )


def mutants() -> Chart:
    """Draw how many small changes of the sources tests noticed."""
    rows = {f"{row['room']}, {row['seed']}": row for row in measured("mutants")}
    return bars({name: {"noticed": 100 * row["share"]} for name, row in rows.items()}, "room, and seed", "% noticed")


def budgeted_memory() -> Chart:
    """Draw the memory of a plan over time, below its budget."""
    plan = fb.plan(400, STATE, fb.Budget(device="6GB", host="24GB"), machine="h200")
    return still(memory_chart(plan, plan.timeline()))


def whole_plan() -> Chart:
    """Draw the plan of a long loop."""
    plan = fb.plan(400, STATE, fb.Budget(device="6GB", host="24GB"), machine="h200")
    return still(timeline_chart(plan, plan.timeline()))


FIGURES: dict[str, Callable[[], Chart]] = {
    "revolve": lambda: steps_of("revolve:5", "6GB"),
    "uniform": lambda: steps_of("uniform:9", "11GB"),
    "zcut": lambda: steps_of("zcut:16", "20GB"),
    "storeall": lambda: steps_of("storeall", "6GB", "70GB"),
    "records": lambda: steps_of("storeall", "6GB", "70GB", record_bytes="0.1GB"),
    "twolevel": lambda: steps_of("twolevel:12,3", "6GB", "40GB"),
    "hierarchical": lambda: steps_of("hierarchical:3,5@3", "6GB", "40GB"),
    "disk": lambda: steps_of("hierarchical:2,2@2,8@6", "4GB", "6GB", "20GB"),
    "lru": lambda: steps_of("revolve:8", "4GB", "40GB", policy="lru"),
    "min": lambda: steps_of("revolve:8", "4GB", "40GB"),
    "repeated": repeated,
    "policies": policies,
    "seconds-by-device": seconds_by_device,
    "phases-by-device": phases_by_device,
    "seconds-by-ratio": seconds_by_ratio,
    "steps-by-price": steps_by_price,
    "plan": whole_plan,
    "memory-of-a-plan": budgeted_memory,
    "measured-reversal": reversal,
    "measured-encoded": encoded,
    "measured-codecs": codecs,
    "measured-codec-speeds": codec_speeds,
    "measured-pool": pool,
    "measured-history": history,
    "measured-acoustic": lambda: waves("acoustic"),
    "measured-elastic": lambda: waves("elastic"),
    "measured-clock": clock,
    "measured-footprints": footprints,
    "measured-schedules": schedules,
    "measured-mutants": mutants,
}
"""By the name of their file."""


def main(folder: Path = PICTURES) -> None:
    """Write all figures again."""
    for name, draw in FIGURES.items():
        draw().write(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
