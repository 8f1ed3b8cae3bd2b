"""Observations: what tightens a model, and what never loosens its grip."""

import pytest

pytest.importorskip("distributed")

from forebay.dask.measuring import Observation, tighten


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


def test_a_model_that_learns_is_taught_the_least_of_each_shape(known):
    taught = []

    class Learns(known):
        def observe(self, *samples):
            taught.extend(samples)
            return self

    tighten(Learns(), [seen(9), seen(8), seen(8, (50, 50, 50))])
    assert [(sample.lengths, sample.host) for sample in taught] == [
        ((100, 100, 100), 8_000_000),
        ((50, 50, 50), 1_000_000),
    ]
