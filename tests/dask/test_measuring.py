"""Observations: what tightens a model, and what never loosens its grip."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("distributed")

from forebay.dask.measuring import Observation
from forebay.dask.tightening import tighten
from forebay.footprint import Model, Sample
from forebay.footprint.measure.conditions import Conditions
from forebay.footprint.measure.inputs import InputLayout


def seen(bytes_a_voxel, shape=(100, 100, 100), seconds=1.0):
    volume = shape[0] * shape[1] * shape[2]
    return Observation(shape, int(bytes_a_voxel * volume), seconds, shape, "float32")


def test_nothing_observed_changes_nothing(known):
    model = known()
    assert tighten(model, []) is model


def test_the_bound_comes_down_to_what_was_seen_run_by_run(known):
    model = known(8, margin=1.5)
    uppers = [tighten(model, [seen(8)] * runs).predict((100, 100, 100)).upper for runs in (0, 1, 3, 100)]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[0] == 12e6
    assert 8e6 < uppers[-1] < 8.2e6


def test_the_bound_covers_the_most_that_was_seen(known):
    model = known(8, margin=1.1)
    tight = tighten(model, [seen(8), seen(11), seen(8)])
    assert tight.predict((100, 100, 100)).upper >= 11e6


def test_the_bound_stays_where_nothing_of_that_size_was_seen(known):
    model = known()
    assert tighten(model, [seen(8)]).predict((400, 400, 400)) == model.predict((400, 400, 400))


def test_where_the_bytes_are_stays_known(known):
    model = known()
    assert tighten(model, [seen(8)]).place == "host"
    model.place = "device"
    assert tighten(model, [seen(8)]).place == "device"


def test_what_the_first_block_of_a_process_pays_for_imports_is_no_bound(known):
    model = known(8, margin=1.5)
    first = replace(seen(31), first=True)
    assert tighten(model, [first]) is model
    assert tighten(model, [first, seen(8)]).predict((100, 100, 100)).upper <= 12e6


def learned(a_voxel):
    """Return a model of tiny samples, as a search takes them."""
    sides = [(14, 16, 18), (28, 32, 36), (42, 16, 18), (14, 48, 18), (14, 16, 54), (63, 71, 81)]
    samples = (Sample(n, int(a_voxel * math.prod(n)), 1e-8 * math.prod(n), None, n, "float32") for n in sides)
    return Model("f", InputLayout.of(3), np.dtype("float32"), tuple(samples), Conditions("VmHWM", True, 2**17, ""))


@pytest.mark.slow
def test_twenty_calls_never_widen_a_bound_anywhere_and_end_at_three_percent_above_what_was_seen():
    model, chance, runs = learned(9), np.random.default_rng(0), []
    shapes = [(80, 90, 100), (160, 150, 140), (300, 320, 310)]
    uppers = [[model.predict(shape).upper for shape in shapes]]
    for _ in range(20):
        garbage = chance.random(6) < 0.2  # that goes while a block runs
        runs += [seen(chance.uniform(1, 8) if gone else chance.uniform(7.9, 8), shapes[1]) for gone in garbage]
        uppers.append([tighten(model, runs).predict(shape).upper for shape in shapes])
    assert all(later <= 1.002 * before for row in np.transpose(uppers) for before, later in itertools.pairwise(row))
    assert uppers[-1][1] <= 1.03 * max(run.bytes for run in runs) and uppers[-1][1] >= max(run.bytes for run in runs)


def test_a_model_that_was_outgrown_follows_what_was_seen_at_any_size():
    model = learned(8)
    tight = tighten(model, [seen(12, (160, 150, 140))] * 3)
    assert tight.predict((300, 320, 310)).upper > 11 * 300 * 320 * 310 > model.predict((300, 320, 310)).upper
