"""Encoded snapshots: the bits of an exact codec come back whatever their sizes are, and the budget holds."""

import time

import numpy as np
import pytest

import forebay as fb
from forebay.codec import register, registry
from forebay.engine.executor import Callbacks
from forebay.engine.layout import Layout
from forebay.engine.spilling import Rooms, SnapshotCoding, SpillingExecutor
from forebay.errors import EngineError
from forebay.machine.packing import Packing
from forebay.machine.virtual import VirtualReversal
from forebay.planner.choose import operations_of
from forebay.planner.simulate import BOUNDLESS, Work, simulate
from forebay.schedule import named
from tests.engine.test_ordering import all_waits
from tests.engine.thinning import Thin, ThinLoop
from tests.spills import spills

STEPS = 16
WORK = Work(1, 1, 1, 1, 1, (1, 1), (1, 1))
FILLINGS = {
    "thin": lambda step: 0.05,
    "full": lambda step: 1.0,
    "filling": lambda step: step / STEPS,
    "sometimes full": lambda step: 1.0 if step % 5 == 3 else 0.02,
}
TAKEN = {"states": lambda state: state, "records": lambda state: state[:2]}
CONFIGURATIONS = [
    (schedule, slots, policy)
    for schedule in ("storeall", "revolve:4", "twolevel:5,2")
    for slots in ((3, 99), (1, 99), (2, 3, 99), (99,))
    for policy in ("min", "lru")
]


SLOW = fb.Costs(1.0, 1.0, 1e9)


def run(schedule, slots, policy, filling, seed, without=None, keep="states", assumed=0.1):
    """Carry a plan out on the virtual machine, in rooms for snapshots of a tenth of their size."""
    loop = ThinLoop(FILLINGS[filling])
    schedule = named(schedule, STEPS)
    operations = operations_of(schedule, slots, policy)
    peak = simulate(operations, (*slots[:-1], BOUNDLESS), WORK).peak
    take = (lambda state, step: state) if keep == "states" else (lambda state, step: state[:2])
    layout = Layout.of(take(loop.state, 0))
    packing = Packing.of(layout.leaves, Thin(), "host")
    machine = VirtualReversal(seed, without)
    rooms = [
        max(int(count * assumed * layout.nbytes), packing.most) + (packing.most if tier == 0 else 0)
        for tier, count in enumerate(peak)
    ]
    initial = lambda: tuple(array.copy() for array in loop.state)  # noqa: E731
    callbacks = Callbacks(loop.forward, loop.backward, take, keep == "states")
    tiers = ("first", "second", "third")[: len(slots)]
    most = [room * (1 + seed % 2) for room in rooms]  # some grow
    states = Layout.of(loop.state)
    exact = (states, Packing.of(states.leaves, Thin(), "host")) if keep == "records" else None
    counts = schedule.peak_snapshots, schedule.forward_steps, schedule.steps
    coding = SnapshotCoding(packing, exact, assumed * layout.nbytes, *counts)
    executor = SpillingExecutor(machine, layout, tiers, Rooms(tuple(rooms), tuple(most)), callbacks, coding, initial)
    executor.run(operations, initial())
    machine.finish()
    for tier, room in zip(tiers, most, strict=True):
        assert machine.metrics.peak[tier] <= room
    return loop.seen, machine.metrics


@pytest.fixture(scope="module")
def expected():
    return {
        (filling, keep): ThinLoop(FILLINGS[filling]).expect(STEPS, TAKEN[keep])
        for filling in FILLINGS
        for keep in TAKEN
    }


SEEDS = [range(2), pytest.param(range(2, 10), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize(("schedule", "slots", "policy"), CONFIGURATIONS, ids=str)
def test_right_whatever_the_sizes(schedule, slots, policy, filling, seeds, expected):
    for seed in seeds:
        seen, metrics = run(schedule, slots, policy, filling, seed)
        assert seen == expected[filling, "states"]
        assert filling != "thin" or (metrics.spilled, metrics.recomputed) == (0, 0)


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("slots", [(3, 99), (1, 99), (2, 2, 99), (99,)], ids=str)
@pytest.mark.parametrize("seeds", SEEDS)
def test_right_for_records_too(slots, filling, seeds, expected):
    for seed in seeds:
        assert run("storeall", slots, "min", filling, seed, keep="records")[0] == expected[filling, "records"]


def test_snapshots_that_do_not_shrink_are_moved_down_and_then_computed_again():
    _, metrics = run("storeall", (3, 99), "min", "full", 0)
    assert metrics.moved["down 1"] > 0 and metrics.lost > 0 and metrics.recomputed > 0 and metrics.replanned == 1


@pytest.mark.parametrize(
    ("configuration", "kept", "counts", "moved", "peak"),
    [
        # Hits, misses, spilled, lost, recomputed, replanned and advanced; bytes by lane; most bytes by tier.
        (
            ("storeall", (3, 99), "min", "full", 0),
            ("states", 0.1),
            [13, 2, 0, 3, 58, 1, 74],
            [143360, 139264],
            [270336, 143360],
        ),
        (
            ("storeall", (3, 99), "min", "filling", 1),
            ("states", 0.1),
            [10, 5, 3, 9, 7, 1, 23],
            [499712, 290816],
            [462848, 303104],
        ),
        (
            ("revolve:4", (1, 99), "lru", "sometimes full", 0),
            ("states", 0.1),
            [7, 7, 7, 6, 2, 1, 32],
            [36864, 28672],
            [270336, 20480],
        ),
        (
            ("twolevel:5,2", (2, 3, 99), "min", "filling", 1),
            ("states", 0.1),
            [11, 5, 0, 0, 0, 0, 31],
            [118784, 159744],
            [331776, 118784],
        ),
        (
            ("storeall", (2, 2, 99), "min", "full", 0),
            ("records", 0.1),
            [13, 2, 5, 4, 30, 1, 46],
            [548864, 413696, 270336, 135168],
            [270336, 135168, 143360],
        ),
        (("storeall", (99,), "min", "full", 1), ("states", 0.3), [15, 0, 0, 6, 5, 1, 21], [], [1359872]),
        (("storeall", (99,), "min", "filling", 0), ("states", 0.2), [15, 0, 0, 5, 8, 1, 24], [], [557056]),
        (("twolevel:5,2", (99,), "min", "sometimes full", 0), ("states", 0.1), [14, 0, 0, 6, 0, 1, 29], [], [159744]),
        (
            ("storeall", (99, 99), "min", "full", 0),
            ("states", 0.4),
            [14, 1, 2, 4, 8, 1, 24],
            [8192, 4096],
            [954368, 8192],
        ),
        (
            ("storeall", (1, 99), "min", "sometimes full", 1),
            ("records", 0.1),
            [2, 14, 0, 0, 0, 0, 16],
            [319488, 319488],
            [274432, 319488],
        ),
        (("storeall", (99,), "min", "filling", 1), ("records", 0.1), [14, 0, 0, 12, 12, 1, 28], [], [651264]),
        (("storeall", (99,), "min", "thin", 0), ("states", 1.0), [16, 0, 0, 0, 0, 0, 16], [], [258048]),
    ],
)
def test_no_more_is_moved_lost_and_computed_again_than_has_to_be(configuration, kept, counts, moved, peak):
    metrics = run(*configuration, keep=kept[0], assumed=kept[1])[1]
    names = ("hits", "misses", "spilled", "lost", "recomputed", "replanned", "advanced")
    assert [getattr(metrics, name) for name in names] == counts
    assert (list(metrics.moved.values()), list(metrics.peak.values())) == (moved, peak)


def test_what_is_needed_last_is_moved_down_first(monkeypatch):
    spilled, copies = [], VirtualReversal.copies

    def noted(machine, lane, what, step, pairs, after):
        if lane == "down 1":
            spilled.append(step)
        return copies(machine, lane, what, step, pairs, after)

    monkeypatch.setattr(VirtualReversal, "copies", noted)
    run("storeall", (99, 99), "min", "full", 0, assumed=0.4)
    assert spilled[:5] == sorted(spilled[:5]) and spilled[0] == 0


@pytest.mark.parametrize("without", all_waits())
def test_wrong_once_any_one_wait_is_left_out(without, expected):
    def goes_wrong(configuration, filling, seed):
        try:
            return run(*configuration, filling, seed, without)[0] != expected[filling, "states"]
        except (EngineError, ValueError):  # a standstill, or an encoding of NaN that does not even have a size
            return False

    assert any(
        goes_wrong(configuration, filling, seed)
        for seed in range(5)
        for filling in FILLINGS
        for configuration in CONFIGURATIONS[::-1]
    )


@pytest.fixture
def thin():
    register("thin", Thin)
    yield "thin"
    del registry._registered["thin"]


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("assumed", [1.0, 8.0, 50.0])
@pytest.mark.parametrize(("host", "disk"), [(40, 0), (5, 60), (4, 2)])
def test_on_host_and_disk_within_the_budget(filling, assumed, host, disk, thin, tmp_path):
    loop = ThinLoop(FILLINGS[filling])
    size = 135168  # of a state, and of one that does not shrink
    budget = fb.Budget(host=int(host * size), disk=disk * size or None)
    known = fb.CodecCost(ratio=assumed, encode=1e12, decode=1e12)
    costs = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9), codecs={thin: known})
    plans = set()
    for schedule in ("auto", "storeall", "revolve:6", "twolevel:4,2"):
        try:
            result = fb.reverse(
                loop.forward,
                loop.backward,
                loop.state,
                STEPS,
                budget=budget,
                schedule=schedule,
                codec=thin,
                costs=costs,
                directory=tmp_path,
            )
        except fb.BudgetError:
            continue
        assert loop.seen == loop.expect(STEPS)
        loop.seen.clear()
        plans.add(result.plan.codec)
        assert result.metrics.peak["host"] + (size if result.plan.codec else 0) <= budget["host"]
        assert result.metrics.peak["disk"] <= disk * size
    assert not spills(tmp_path)
    assert thin in plans or assumed == 1.0


def test_what_was_measured_of_the_codec_is_given_back(thin):
    loop = ThinLoop(FILLINGS["thin"])
    result = fb.reverse(loop.forward, loop.backward, loop.state, STEPS, budget="700kB", codec=thin, costs=SLOW)
    assert result.plan.codec == thin
    assert result.plan.costs.codecs[thin].ratio == 4.0  # more is not believed of the first steps
    assert result.costs.codecs[thin].ratio > 8
    assert "ratio" in result.explain() and "compressed" in [*result.metrics.table().columns[0].cells]


@pytest.mark.parametrize("name", ["cast:float16", "cast:bfloat16"])
def test_a_lossy_codec_keeps_its_bound_on_records(name):
    field = np.linspace(-1, 1, 5000, dtype=np.float32)
    seen = {}
    result = fb.reverse(
        lambda state, start, stop: (state[0] * np.float32(1.001) ** (stop - start), state[1] + 1),
        lambda record, step: seen.update({step: record[0].copy()}),
        (field, np.zeros(2000)),
        40,
        budget="600kB",
        record=(0,),
        codec=name,
        costs=fb.Costs(1.0, 1e-3, 1e9, codecs={name: fb.CodecCost(1.9, 1e9, 1e9)}),
    )
    assert (result.plan.codec, result.plan.keep) == (name, "records")
    exact = field
    for step in range(40):
        assert 0 < np.abs(seen[step] - exact).max() <= 2.0**-8 * np.abs(exact).max()
        exact = exact * np.float32(1.001)


def test_exceptions_in_the_encoder_come_through(tmp_path):
    class Broken(Thin):
        name = "broken"

        def encode_host(self, array, out):
            if array[0].any():
                raise ZeroDivisionError("encoder")
            return super().encode_host(array, out)

    loop = ThinLoop(FILLINGS["thin"])
    known = fb.CodecCost(ratio=8, encode=1e12, decode=1e12)
    costs = fb.Costs(1e-3, 1e-3, 1e9, codecs={"broken": known})
    with pytest.raises(ZeroDivisionError, match="encoder"):
        fb.reverse(loop.forward, loop.backward, loop.state, STEPS, budget="700kB", codec=Broken(), costs=costs)


class Slow(Thin):
    """Encodes so late that the loop would have changed the arrays."""

    name = "slow"

    def encode_host(self, array, out):
        time.sleep(2e-3)
        return super().encode_host(array, out)


def test_a_loop_that_works_in_place_does_not_disturb_the_encoder():
    state = {"u": np.ones(2000), "v": np.zeros(10)}
    seen = {}

    def forward(state, start, stop):
        for _ in range(start, stop):
            state["u"] += 1
        return state

    known = fb.CodecCost(ratio=8, encode=1e12, decode=1e12)
    fb.reverse(
        forward,
        lambda state, step: seen.update({step: state["u"].copy()}),
        state,
        12,
        budget="700kB",
        schedule="storeall",
        codec=Slow(),
        costs=fb.Costs(1.0, 1.0, 1e9, codecs={"slow": known}),
    )
    for step, field in seen.items():
        np.testing.assert_array_equal(field, np.full(2000, step + 1.0))


def test_hits_and_misses_are_those_that_happened():
    _, metrics = run("storeall", (3, 99), "min", "thin", 0)
    assert metrics.hits + metrics.misses == STEPS
    assert metrics.misses > 0
    assert run("storeall", (3, 99), "min", "full", 0)[1].misses > 0


def test_what_a_snapshot_may_take_is_known_whatever_the_costs_say():
    state = (np.random.default_rng(0).standard_normal(1000),)
    for budget in range(24_000, 40_000, 1000):
        try:
            fb.reverse(
                lambda state, start, stop: state,
                lambda state, step: None,
                state,
                20,
                budget=budget,
                codec="lossless",
                costs=fb.Costs(1.0, 1.0, 1e9, codecs={"lossless": fb.CodecCost(6, 1e9, 1e9)}),
            )
        except fb.BudgetError:
            continue
