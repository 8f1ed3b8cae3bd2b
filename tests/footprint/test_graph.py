"""Graphs: liveness, the operator that causes the peak, and one chunking for all of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer

from forebay.errors import PlanError
from forebay.footprint.chunks.plan import plan_chunks
from forebay.footprint.estimate import Estimate
from forebay.footprint.graph import Graph
from forebay.footprint.measure.inputs import InputLayout

SHAPE = (10, 20)
VOLUME = 200


class Fake:
    """Needs `scratch` bytes a voxel besides an output of a dtype, each axis shorter by `trims`."""

    def __init__(self, scratch, output="float32", trims=0, dtype="float32", ndim=2, output_ndim=None):
        self.scratch, self.output, self.trims = scratch, np.dtype(output), trims
        self.dtype, self.ndim, self.output_ndim = np.dtype(dtype), ndim, output_ndim

    def predict(self, shape):
        out = tuple(n - self.trims for n in shape)[: self.output_ndim]
        needed = self.scratch * math.prod(shape) + math.prod(out) * self.output.itemsize
        return Estimate(needed, 2 * needed, 0.01, out, self.output, 1.0)


def start(dtype="float32"):
    graph = Graph()
    return graph, graph.input("x", ndim=2, dtype=dtype)


def test_one_operator_needs_what_its_model_says():
    graph, x = start()
    graph.add("f", Fake(16), x)
    assert graph.predict(SHAPE) == Fake(16).predict(SHAPE)


def test_a_model_of_several_inputs_is_asked_for_all_of_their_shapes():
    class Outer(Fake):
        layout = InputLayout.of([2, 1])

        def at(self, lengths):
            assert lengths == (*SHAPE, SHAPE[0])
            return Estimate(1, 2, 0.01, SHAPE, np.dtype("float32"), 1.0)

    graph, x = start()
    line = graph.add("line", Fake(0, output_ndim=1), x)
    graph.add("outer", Outer(0), x, line)
    assert graph.peak(SHAPE).stages[-1].estimate.upper == 2
    graph.add("wrong", Outer(0), x)
    with pytest.raises(PlanError, match="reads 1 arrays; its model takes 2"):
        graph.peak(SHAPE)


def test_only_arrays_of_the_graph_are_read():
    graph, _ = start()
    with pytest.raises(PlanError, match=r"give it what input\(\) or add\(\) gave"):
        graph.add("f", Fake(0), np.zeros(3))


def test_a_chain_frees_what_was_read_for_the_last_time():
    graph, x = start()
    a = graph.add("a", Fake(0), x)
    b = graph.add("b", Fake(0), a)
    graph.add("c", Fake(0), b)
    assert graph.peak(SHAPE).bytes == 2 * 4 * VOLUME  # the result that is read, and the one that is made
    assert [stage.held for stage in graph.peak(SHAPE).stages] == [0, 800, 800]


def test_a_branch_holds_its_results_until_they_meet():
    graph, x = start()
    a = graph.add("a", Fake(0), x)
    b = graph.add("b", Fake(0), x)
    c = graph.add("c", Fake(100), x)
    graph.add("sum", Fake(0), a, b, c)
    peak = graph.peak(SHAPE)
    assert peak.operator == "c"
    assert peak.bytes == (2 * 4 + 100 + 4) * VOLUME
    assert [stage.held for stage in peak.stages] == [0, 800, 1600, 2400]


def test_the_same_operators_in_another_order_may_need_less():
    graph, x = start()
    c = graph.add("c", Fake(100), x)
    a = graph.add("a", Fake(0), x)
    graph.add("sum", Fake(0), a, c)
    assert graph.peak(SHAPE).bytes == 104 * VOLUME


def test_results_that_are_kept_are_held_to_the_end():
    graph, x = start()
    a = graph.add("a", Fake(0), x, keep=True)
    b = graph.add("b", Fake(0), a)
    graph.add("c", Fake(0), b)
    assert graph.results == ("a", "c")
    assert graph.peak(SHAPE).bytes == 3 * 4 * VOLUME
    assert graph.predict(SHAPE).output_shape is None  # two of them


def test_output_shape_and_dtype_of_one_are_input_of_the_next():
    graph, x = start()
    analytic = graph.add("analytic", Fake(0, output="complex64", trims=2), x)
    graph.add("power", Fake(0, output="float64", dtype="complex64"), analytic)
    estimate = graph.predict(SHAPE)
    assert (estimate.output_shape, estimate.output_dtype) == ((8, 18), np.dtype("float64"))
    assert estimate.bytes == 8 * 18 * (8 + 8)
    assert estimate.seconds == 2.0
    assert estimate.risk == pytest.approx(0.02)


def test_a_model_learned_on_another_dtype_is_refused():
    graph, x = start()
    analytic = graph.add("analytic", Fake(0, output="complex64"), x)
    graph.add("power", Fake(0), analytic)
    with pytest.raises(PlanError, match=r"'power' reads 'analytic' of complex64.*dtype='complex64'"):
        graph.peak(SHAPE)


def test_a_model_learned_on_other_axes_is_refused():
    graph, x = start()
    line = graph.add("line", Fake(0, output_ndim=1), x)
    graph.add("plane", Fake(0), line)
    with pytest.raises(PlanError, match=r"'plane' reads 'line' with 1 axes.*ndim=1"):
        graph.peak(SHAPE)


def test_halos_add_up_along_the_longest_way():
    graph, x = start()
    a = graph.add("a", Fake(0), x, halo=(1, 5))
    b = graph.add("b", Fake(0), a, halo=(2, 0))
    c = graph.add("c", Fake(0), x, halo=(0, 6))
    graph.add("sum", Fake(0), b, c, halo=np.int64(1))
    assert graph.halo == (4, 7)


def test_several_inputs_are_all_counted():
    graph, x = start()
    y = graph.input("y", ndim=2, dtype="float64")
    graph.add("sum", Fake(0), x, y)
    assert graph.input_bytes(SHAPE) == 12 * VOLUME
    plan = plan_chunks(graph, (1000, 1000), "1MB")
    assert plan.need.input == 12 * math.prod(plan.chunks)


@fewer(30)
@given(
    scratch=st.lists(st.integers(0, 100), min_size=1, max_size=6),
    halos=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    budget=st.integers(600_000, 10**7),
)
def test_one_chunking_fits_every_stage(scratch, halos, budget):
    graph, x = start()
    array = x
    for place, factor in enumerate(scratch):
        array = graph.add(f"f{place}", Fake(factor), array, halo=halos[place])
    chunks = graph.chunks((500, 700), budget)
    chunk = tuple(n + 2 * h for n, h in zip(chunks, graph.halo, strict=True))
    for stage in graph.peak(chunk).stages:
        assert graph.input_bytes(chunk) + stage.upper <= budget


def test_what_cannot_be_meant_is_refused():
    graph, x = start()
    other, y = start()
    graph.add("a", Fake(0), x)
    with pytest.raises(PlanError, match="a name of its own"):
        graph.add("a", Fake(0), x)
    with pytest.raises(PlanError, match="another graph"):
        graph.add("b", Fake(0), y)
    for halo in (1.5, (1, -1), (1,)):
        with pytest.raises(PlanError, match="whole number, 0 or more, for each of 2 axes"):
            graph.add("b", Fake(0), x, halo=halo)
    with pytest.raises(PlanError, match="reads nothing"):
        graph.add("b", Fake(0))
    with pytest.raises(PlanError, match="no operators"):
        other.peak(SHAPE)
    with pytest.raises(PlanError, match="no inputs"):
        Graph().chunks(SHAPE, "1GB")
