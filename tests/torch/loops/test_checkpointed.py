"""Loops differentiated inside a budget: bit-equal to plain autograd, whatever the plan."""

import gc
import threading

import pytest
import torch
from tests.spills import spills
from tests.torch.cases import crossed
from tests.torch.loops.shared import assert_equal, forget_plans
from torch import nn

import forebay as fb
from forebay.errors import StateError
from forebay.torch import checkpointed

SNAPSHOT = 4096
STEPS = 23
QUICK = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    before = set(threading.enumerate())
    torch.manual_seed(1)
    forget_plans()
    yield
    if spills(tmp_path) or not set(threading.enumerate()) <= before:
        gc.collect()  # which takes long, and is needed only where an exception holds on to something
    assert not spills(tmp_path)
    assert set(threading.enumerate()) <= before


def wave(state, t, source, speed, damping):
    """Two fields and a counter; speed is used three times, damping twice, so the order of their sums shows."""
    now, before, count = state["now"], state["before"], state["count"]
    laplacian = torch.roll(now, 1) + torch.roll(now, -1) - 2 * now
    new = 2 * now - before + speed * laplacian + (speed * now).sin() * damping
    new = new * (1 - damping) + 0.01 * speed + source * (count % 3)
    return {"count": count + 1, "before": now, "now": new}, (new[::2], now)


def problem(points=9, dtype=torch.float32):
    make = torch.Generator().manual_seed(points)

    def random(*shape):
        return torch.randn(*shape, generator=make, dtype=dtype)

    state = {
        "now": random(points).requires_grad_(),
        "before": random(points),
        "count": torch.zeros((), dtype=torch.int64),
    }
    inputs = random(STEPS, points).requires_grad_()
    params = ((0.1 * random(points)).abs().requires_grad_(), torch.tensor(0.03, dtype=dtype, requires_grad=True))
    return state, inputs, params


def plain(step, state, steps, inputs, params):
    """The same loop written out."""
    outputs = []
    for t in range(steps):
        state, output = step(state, t, inputs[t], *params)
        outputs.append(output)
    return state, tuple(torch.stack(leaves) for leaves in zip(*outputs, strict=True))


def loss_of(state, outputs):
    return (state["now"] ** 2).sum() + state["before"].sin().sum() + sum((output**3).sum() for output in outputs)


def gradients(loss, state, inputs, params):
    return torch.autograd.grad(loss, (state["now"], inputs, *params))


SCHEDULES = [(schedule, 1) for schedule in ("storeall", "uniform:4", "zcut:10", "revolve:4", "twolevel:5,2", "auto")]
SCHEDULES += [("storeall", 4), ("revolve:2", 4), ("auto", 4), ("revolve", None), ("auto", None)]


@pytest.mark.parametrize(("scheduled", "room"), crossed(SCHEDULES, [(40, 0), (6, 40), (2, 40)]))
def test_bit_equal_to_plain_autograd(scheduled, room, tmp_path):
    (schedule, chunk), (host, disk) = scheduled, room
    state, inputs, params = problem()
    wanted_state, wanted_outputs = plain(wave, state, STEPS, inputs, params)
    wanted = gradients(loss_of(wanted_state, wanted_outputs), state, inputs, params)
    budget = fb.Budget(host=host * SNAPSHOT, disk=disk * SNAPSHOT if disk else None)
    results = []
    for _ in range(2):
        final, outputs = checkpointed(
            wave,
            state,
            STEPS,
            inputs=inputs,
            params=params,
            outputs=True,
            budget=budget,
            schedule=schedule,
            chunk=chunk,
            costs=QUICK,
            directory=tmp_path,
            report=results.append,
        )
        assert_equal(final.values(), (wanted_state[key] for key in final))
        assert_equal(outputs, wanted_outputs)
        assert_equal(gradients(loss_of(final, outputs), state, inputs, params), wanted)
    assert results[0].plan == results[1].plan if results else schedule == "auto"
    for result in results:
        assert result.metrics.peak["host"] <= host * SNAPSHOT


@pytest.mark.parametrize("chunk", [1, 3])
def test_modules_give_their_parameters(chunk):
    cell = nn.GRUCell(5, 5)
    start, drive = torch.randn(2, 5), torch.randn(2, 5, requires_grad=True)

    def step(h, t, cell, drive):
        return cell(drive * (t + 1), cell(drive, h))

    h = start
    for t in range(12):
        h = step(h, t, cell, drive)
    wanted = torch.autograd.grad(h.square().sum(), (*cell.parameters(), drive))
    final = checkpointed(
        step,
        start,
        12,
        params=(cell, drive),
        budget="64kB",
        schedule="revolve:3" if chunk == 1 else "revolve",
        chunk=chunk,
    )
    assert torch.equal(final, h)
    assert_equal(torch.autograd.grad(final.square().sum(), (*cell.parameters(), drive)), wanted)

    # The same through backward(), which leaves nothing but the gradients.
    final = checkpointed(
        lambda h, t, *_: step(h, t, cell, drive),
        start,
        12,
        params=[*cell.parameters(), drive],
        budget="64kB",
        chunk=chunk,
    )
    final.square().sum().backward()
    assert_equal([p.grad for p in (*cell.parameters(), drive)], wanted)


def test_parameters_with_a_history_and_given_twice():
    raw = torch.randn(4, requires_grad=True)

    def step(y, t, a, b):
        return (y * a).cos() + b * 0.1

    def loss(run):
        shared = raw.exp()
        return run(shared).sum()

    def written_out(shared):
        y = torch.ones(4)
        for t in range(9):
            y = step(y, t, shared, shared)
        return y

    def ours(shared):
        return checkpointed(step, torch.ones(4), 9, params=(shared, shared), budget="64kB", schedule="revolve:2")

    assert_equal(torch.autograd.grad(loss(ours), raw), torch.autograd.grad(loss(written_out), raw))


def test_dropout_draws_the_same_masks_and_leaves_the_generator_as_plain_autograd_does():
    weight = torch.randn(6, requires_grad=True)

    def step(y, t, weight):
        return torch.dropout(y * weight, 0.5, True) + torch.rand(6) if t % 3 else y * weight

    torch.manual_seed(7)
    y = torch.ones(6)
    for t in range(20):
        y = step(y, t, weight)
    after = torch.rand(3)
    wanted = torch.autograd.grad(y.sum(), weight)
    for chunk, schedule in ((1, "revolve:3"), (6, "storeall"), (20, "storeall")):
        torch.manual_seed(7)
        final = checkpointed(
            step, torch.ones(6), 20, params=weight, budget="1MB", schedule=schedule, chunk=chunk, costs=QUICK
        )
        assert torch.equal(torch.rand(3), after)
        kept = torch.get_rng_state()
        assert_equal(torch.autograd.grad(final.sum(), weight), wanted)
        assert torch.equal(final, y)
        assert torch.equal(torch.get_rng_state(), kept)


@pytest.mark.parametrize("chunk", [1, 4])
def test_autocast_is_set_again(chunk):
    layer = nn.Linear(8, 8)
    start = torch.randn(3, 8)

    def step(y, t, layer):
        return (y + layer(layer(y)).float()) * 0.5

    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        y = start
        for t in range(10):
            y = step(y, t, layer)
        final = checkpointed(step, start, 10, params=layer, budget="1MB", schedule="storeall", chunk=chunk)
    assert torch.equal(final, y)
    wanted = torch.autograd.grad(y.sum(), layer.parameters())
    assert_equal(torch.autograd.grad(final.sum(), layer.parameters()), wanted)  # outside of autocast, as is usual


def test_states_with_plain_values_nested_and_in_other_memory_orders():
    weight = torch.randn(2, 3, requires_grad=True)

    def step(state, t, weight):
        (field, count), rest = state
        field = torch.tanh(field * weight.mT.unsqueeze(0)) + rest["shift"]
        return (field, count + 1), {"name": rest["name"], "shift": rest["shift"] * 0.9, "none": None}

    def run(loop):
        field = torch.linspace(0, 1, 24).reshape(4, 2, 3).mT  # its last axis is not the fastest
        final = loop(((field, 0), {"shift": 0.5, "name": "a", "none": None}))
        return final, torch.autograd.grad(final[0][0].sum(), weight)

    def written_out(state):
        for t in range(11):
            state = step(state, t, weight)
        return state

    wanted, gradient = run(written_out)
    got, found = run(lambda state: checkpointed(step, state, 11, params=weight, budget="64kB", schedule="revolve:3"))
    assert got[0][1] == 11 and got[1] == wanted[1]
    assert torch.equal(got[0][0], wanted[0][0]) and got[0][0].stride() == wanted[0][0].stride()
    assert_equal(found, gradient)


def test_the_whole_state_as_output_adds_up_in_the_same_order():
    start, weight = torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)

    def step(y, t, weight):
        new = torch.sin(y * weight) + y * 0.3 + weight * y
        return new, new

    def written_out():
        y, outputs = start, []
        for t in range(17):
            y, output = step(y, t, weight)
            outputs.append(output)
        return torch.stack(outputs)

    factors = torch.randn(17, 64)
    wanted = torch.autograd.grad((written_out() * factors).sum(), (start, weight))
    for chunk, schedule in ((1, "revolve:3"), (5, "storeall"), (17, "storeall")):
        _, outputs = checkpointed(
            step, start, 17, params=weight, outputs=True, budget="1MB", schedule=schedule, chunk=chunk, costs=QUICK
        )
        assert_equal(torch.autograd.grad((outputs * factors).sum(), (start, weight)), wanted)


def test_the_final_state_stays_as_it_is_while_the_loop_is_differentiated():
    start = tuple(torch.randn(4) for _ in range(3))
    weight = torch.randn(4, requires_grad=True)
    final = checkpointed(
        lambda y, t, weight: (y[0] * weight, y[0], y[1]), start, 2, params=weight, budget="64kB", schedule="storeall"
    )
    torch.autograd.grad(final[0].sum(), weight)
    assert_equal(final, (start[0] * weight * weight, start[0] * weight, start[0]))


def test_a_tensor_at_several_places_of_the_state_has_one_sum():
    start, weight = torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)

    def step(state, t, weight):
        a, b = state
        new = a * weight + b.sin() * weight - 0.3 * b
        return (new, new) if t % 2 else (new, a)

    state = (start, start)
    for t in range(9):
        state = step(state, t, weight)
    wanted = torch.autograd.grad((state[0] * state[1]).sum(), (start, weight))
    for chunk, schedule in ((1, "revolve:3"), (2, "storeall")):
        final = checkpointed(
            step, (start, start), 9, params=weight, budget="1MB", schedule=schedule, chunk=chunk, costs=QUICK
        )
        assert_equal(torch.autograd.grad((final[0] * final[1]).sum(), (start, weight)), wanted)


class Product(torch.autograd.Function):
    """Hands back what it saved, as some operations do."""

    @staticmethod
    def forward(ctx, y, weight):
        ctx.save_for_backward(y)
        return y * 0.5 + weight

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5, ctx.saved_tensors[0]


def test_gradients_do_not_lie_in_memory_that_is_used_again():
    weight = torch.randn(5, requires_grad=True)
    y = torch.ones(5)
    for _ in range(3):
        y = Product.apply(y, weight)
    wanted = torch.autograd.grad(y.sum(), weight)
    for schedule in ("storeall", "revolve:2", "revolve:1"):
        final = checkpointed(
            lambda y, t, weight: Product.apply(y, weight),
            torch.ones(5),
            3,
            params=weight,
            budget="64kB",
            schedule=schedule,
            chunk=1,
        )
        assert_equal(torch.autograd.grad(final.sum(), weight), wanted)


def count_calls():
    calls = []

    def step(y, t, weight):
        calls.append(t)
        return torch.sin(y * weight)

    return calls, step


def test_where_nothing_has_a_gradient_the_loop_is_run_once_and_nothing_is_kept():
    calls, step = count_calls()
    weight = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        first = checkpointed(step, torch.ones(3), 7, params=weight, budget="1kB")
    second = checkpointed(step, torch.ones(3), 7, params=torch.ones(3), budget="1kB")
    assert calls == [*range(7)] * 2
    assert torch.equal(first, second) and not first.requires_grad


def test_where_the_whole_graph_fits_nothing_is_recomputed():
    calls, step = count_calls()
    weight = torch.randn(3, requires_grad=True)
    final = checkpointed(step, torch.ones(3), 50, params=weight, budget="1MB")
    first = len(calls)
    final.sum().backward()
    assert len(calls) == first
    calls.clear()
    checkpointed(step, torch.ones(3), 50, params=weight, budget="1MB").sum().backward()
    assert calls == [*range(50)]  # the second time nothing is measured


def test_a_loop_is_planned_once():
    calls, step = count_calls()
    weight, plans = torch.randn(2000, requires_grad=True), []
    for _ in range(3):
        calls.clear()
        final = checkpointed(
            lambda y, t, weight: step(y, t, weight),
            torch.ones(2000),
            50,
            params=weight,
            budget="64kB",
            report=lambda result: plans.append(result.plan),
        )
        final.sum().backward()
        chosen = plans[-1]
        forward = chosen.schedule.forward_steps * chosen.every
        assert forward - chosen.every < len(calls) - 50 <= forward or len(plans) == 1
    assert plans[0] == plans[1] == plans[2]
    again = []
    checkpointed(step, torch.ones(2000), 50, params=weight, plan=plans[0], report=again.append).sum().backward()
    assert again[0].plan == plans[0]
    assert "measured against predicted" in again[0].explain()


def test_several_backward_passes_and_several_loops_at_once():
    weight = torch.randn(5, requires_grad=True)

    def run(factor):
        return checkpointed(
            lambda y, t, weight: torch.sin(y * weight) * factor,
            torch.ones(5),
            12,
            params=weight,
            budget="64kB",
            schedule="revolve:3",
        )

    one, other = run(1.0), run(0.5)
    (first,) = torch.autograd.grad(one.sum(), weight, retain_graph=True)
    (between,) = torch.autograd.grad(other.sum(), weight)
    (second,) = torch.autograd.grad(one.sum(), weight)
    assert torch.equal(first, second) and not torch.equal(first, between)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(one.sum(), weight)
    total = run(1.0).sum() + run(0.5).sum()
    torch.testing.assert_close(torch.autograd.grad(total, weight), (first + between,))


def test_the_second_derivative_is_refused_with_a_reason():
    weight = torch.randn(5, requires_grad=True)
    final = checkpointed(
        lambda y, t, w: torch.sin(y * w), torch.ones(5), 6, params=weight, budget="64kB", schedule="revolve:2"
    )
    (gradient,) = torch.autograd.grad(final.sum(), weight, create_graph=True)
    with pytest.raises(fb.ForebayError, match="once, not twice"):
        gradient.sum().backward()


@pytest.mark.parametrize("how", ["dropped", "failed in a step", "failed on the way back"])
def test_what_is_given_up_leaves_nothing(how, tmp_path):
    weight = torch.randn(700, requires_grad=True)
    armed = []

    def step(y, t, weight):
        if t == 20 and armed:
            raise ZeroDivisionError
        new = torch.sin(y * weight)
        return new, new[:3]

    def run():
        return checkpointed(
            step,
            torch.ones(700),
            30,
            params=weight,
            outputs=True,
            budget=fb.Budget(host="20kB", disk="1MB"),
            schedule="storeall",
            chunk=1,
            costs=QUICK,
            directory=tmp_path,
        )

    final, outputs = run()
    assert spills(tmp_path)
    gc.disable()  # what is given up is given back at once, not when somebody collects garbage
    try:
        if how == "failed on the way back":
            armed.append(1)
            with pytest.raises(ZeroDivisionError):
                (final.sum() + outputs.sum()).backward()
        del final, outputs
        if how == "failed in a step":
            armed.append(1)
            with pytest.raises(ZeroDivisionError):
                run()
        assert not spills(tmp_path)
    finally:
        gc.enable()


def test_a_lossy_codec_keeps_close():
    weight = torch.rand(3000, requires_grad=True)
    results = []

    def run(codec):
        final = checkpointed(
            lambda y, t, weight: y + 0.01 * torch.sin(y * weight),
            torch.linspace(0, 1, 3000),
            40,
            params=weight,
            budget="400kB" if codec else "600kB",
            schedule="storeall",
            chunk=1,
            codec=codec,
            costs=fb.Costs(1e-3, 1e-3, 1e9),
            report=results.append,
        )
        return torch.autograd.grad(final.sum(), weight)[0]

    exact, rounded = run(None), run("cast:bfloat16")
    assert results[1].plan.codec == "cast:bfloat16"
    assert 0 < (exact - rounded).abs().max() <= 1e-2 * exact.abs().max()


WEIGHT = torch.ones(3, requires_grad=True)


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, y):
        self.seen += 1
        return y * self.weight


def hooked():
    layer = nn.Linear(3, 3)
    layer.weight.register_hook(lambda gradient: gradient)
    return layer


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"steps": 0}, fb.ScheduleError, "at least one step"),
        ({"chunk": 0}, fb.PlanError, "at least 1"),
        ({"state": ()}, StateError, "no tensors"),
        ({"state": {"y": object()}}, StateError, "plain values"),
        ({"inputs": torch.ones(4, 3)}, StateError, "10 entries"),
        ({"inputs": [1.0]}, StateError, "first axis is time"),
        ({"budget": "1kB"}, fb.BudgetError, "needs 4.1kB"),
        ({"budget": "8kB", "schedule": "storeall"}, fb.BudgetError, "budget"),
        ({"budget": "20kB", "chunk": 10, "state": torch.ones(500, 3)}, fb.BudgetError, "smaller chunk"),
        ({"budget": fb.Budget(device="8GB")}, fb.BudgetError, "on the host"),
        ({"codec": "nothing"}, fb.ForebayError, "no codec is called"),
        ({"params": hooked()}, StateError, "hooks"),
        ({"step": lambda y, t, w: (y, y)}, StateError, "where a tensor"),
        ({"step": lambda y, t, w: (y * w)[:2]}, StateError, r"\[2\]"),
        ({"step": lambda y, t, w: y.double() * w}, StateError, "float64"),
        ({"step": lambda y, t, w: y * w, "outputs": True}, StateError, r"\(state, output\)"),
        ({"step": lambda y, t, w: (y * w, t), "outputs": True}, StateError, "outputs are tensors"),
        ({"step": lambda y, t, w: y * w * WEIGHT}, StateError, "params="),
        ({"params": torch.ones(3), "step": lambda y, t, w: y * WEIGHT}, StateError, "params="),
    ],
)
def test_bad_input_is_refused(arguments, error, says):
    weight = torch.ones(3, requires_grad=True)
    call = {"step": lambda y, t, w: y * w, "state": torch.ones(3), "steps": 10, "params": weight, "budget": "64kB"}
    with pytest.raises(error, match=says):
        checkpointed(**call | arguments)


def test_buffers_that_a_step_changes_are_refused_and_left_as_they_were():
    module = Buffered()
    with pytest.raises(StateError, match="seen"):
        checkpointed(lambda y, t, module: module(y), torch.ones(3), 10, params=module, budget="64kB")
    assert module.seen == 0
