"""An optimizer whose states are on the host, beside the same one whose states are not."""

import copy
import io
import itertools
import re

import pytest
import torch
from tests.torch.cases import mostly_slow
from tests.torch.models import DEVICES, deterministic  # noqa: F401
from torch import nn, optim
from torch.utils._python_dispatch import TorchDispatchMode

from forebay import Budget
from forebay.errors import BudgetError, PlanError
from forebay.torch import offloaded, states_of
from forebay.torch.step import batches

TIGHT = Budget(device="50kB", host="1GB")
OPTIMIZERS = {
    "adam": lambda p: optim.Adam(p, 0.01),
    "adamw amsgrad": lambda p: optim.AdamW(p, 0.01, amsgrad=True, weight_decay=0.1),
    "adamw foreach": lambda p: optim.AdamW(p, 0.01, foreach=True),
    "adamw fused": lambda p: optim.AdamW(p, 0.01, fused=True),
    "adamw maximize": lambda p: optim.AdamW(p, 0.01, maximize=True),
    "sgd": lambda p: optim.SGD(p, 0.01),
    "sgd momentum": lambda p: optim.SGD(p, 0.01, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, 0.01),
    "adadelta": lambda p: optim.Adadelta(p),
    "adamax": lambda p: optim.Adamax(p, 0.01),
    "nadam": lambda p: optim.NAdam(p, 0.01),
    "radam": lambda p: optim.RAdam(p, 0.01),
    "asgd": lambda p: optim.ASGD(p, 0.01),
    "rprop": lambda p: optim.Rprop(p, 0.01),
    "adafactor": lambda p: optim.Adafactor(p, 0.01),
    "muon": lambda p: optim.Muon([one for one in p if one.dim() == 2], 0.01),
}


def net(device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    layers = [nn.Linear(16, 64), nn.Tanh(), *(nn.Linear(64, 64) for _ in range(5)), nn.Tanh(), nn.Linear(64, 4)]
    return nn.Sequential(*layers).to(device, dtype)


def pair(make, budget=TIGHT, device="cpu", **how):
    """Give a model with an offloaded optimizer, and its plain twin."""
    plain = net(device)
    model = copy.deepcopy(plain)
    return (model, offloaded(make(list(model.parameters())), budget, **how)), (plain, make(list(plain.parameters())))


def train(model, optimizer, steps=3, seed=1):
    torch.manual_seed(seed)
    kind = next(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16).to(kind)).square().mean().backward()
        optimizer.step()


def same(ours, theirs):
    (model, optimizer), (plain, other) = ours, theirs
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), plain.parameters(), strict=True))
    one, two = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert one.keys() == two.keys()
    for number, states in two.items():
        assert one[number].keys() == states.keys()
        assert all(torch.equal(one[number][key].cpu(), value.cpu()) for key, value in states.items())
    return True


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", mostly_slow(OPTIMIZERS, "adamw foreach", "adamw fused", "sgd momentum", "muon"))
def test_steps_are_bit_equal_to_those_of_states_that_stay(make, device):
    ours, theirs = pair(make, device=device)
    for _ in range(2):
        train(*ours)
        train(*theirs)
    assert same(ours, theirs)
    metrics = states_of(ours[1]).metrics
    assert metrics.peak["device"] <= TIGHT["device"]
    states = [value for states in theirs[1].state_dict()["state"].values() for value in states.values()]
    assert bool(metrics.moved["up 1"]) == (sum(value.nbytes for value in states if value.dim()) > TIGHT["device"])


def test_states_that_fit_stay_and_nothing_moves():
    ours, theirs = pair(OPTIMIZERS["adam"], Budget(device="1MB"))
    train(*ours)
    train(*theirs)
    assert same(ours, theirs) and not states_of(ours[1]).metrics.moved


@pytest.mark.parametrize("device", ["60kB", "110kB", "160kB"])
def test_the_budget_of_the_device_holds_and_what_does_not_fit_moves(device, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 10_000)
    budget = Budget(device=device, host="1MB")
    ours, theirs = pair(OPTIMIZERS["adam"], budget)
    train(*ours, steps=1)
    train(*theirs, steps=1)
    metrics, total = states_of(ours[1]).metrics, 2 * sum(p.nbytes for p in ours[0].parameters())
    before = metrics.moved["up 1"]
    train(*ours, steps=1, seed=2)
    train(*theirs, steps=1, seed=2)
    moved = metrics.moved["up 1"] - before
    assert same(ours, theirs)
    assert metrics.peak["device"] <= budget["device"] < total
    assert total - budget["device"] <= moved <= total - budget["device"] + 2 * 64 * 64 * 4 + 3 * 2 * 64 * 65 * 4


def test_states_can_be_read_between_steps():
    ours, theirs = pair(OPTIMIZERS["adam"])
    train(*ours)
    train(*theirs)
    for p, other in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        assert torch.equal(ours[1].state[p]["exp_avg"], theirs[1].state[other]["exp_avg"])


def masters_by_hand(model, make):
    """Give what keeps float32 copies by hand: its step, for a model of bfloat16."""
    masters = [p.detach().float() for p in model.parameters()]
    optimizer = make(masters)

    def step():
        for p, master in zip(model.parameters(), masters, strict=True):
            master.grad = None if p.grad is None else p.grad.float()
        optimizer.step()
        with torch.no_grad():
            for p, master in zip(model.parameters(), masters, strict=True):
                p.copy_(master)

    return step


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["adamw foreach", "sgd momentum", "sgd"])
def test_masters_step_as_float32_copies_kept_by_hand(name, device):
    model, plain = net(device, torch.bfloat16), net(device, torch.bfloat16)
    optimizer = offloaded(OPTIMIZERS[name](list(model.parameters())), Budget(device="50kB", host="1MB"), master=True)
    step = masters_by_hand(plain, OPTIMIZERS[name])
    for number in range(4):
        torch.manual_seed(number)
        x = torch.randn(8, 16, device=device, dtype=torch.bfloat16)
        for each, advance in ((model, optimizer.step), (plain, step)):
            each.zero_grad()
            each(x).square().mean().backward()
            advance()
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), plain.parameters(), strict=True))
    states = next(iter(optimizer.state.values()))
    assert all(value.dtype == torch.float32 for value in states.values()) and "master" in states


def test_parameters_without_a_gradient_are_left_alone_and_frozen_ones_take_nothing():
    ours, theirs = pair(OPTIMIZERS["adam"])
    for model, optimizer in (ours, theirs):
        model[2].requires_grad_(False)
        train(model, optimizer)
        model[2].requires_grad_(True)
        train(model, optimizer, seed=2)
        optimizer.zero_grad()
        model[:4](torch.ones(2, 16)).sum().backward()
        optimizer.step()
    assert same(ours, theirs)


def test_groups_schedulers_hooks_and_closures_work_as_before():
    def make(parameters):
        return optim.AdamW(
            [{"params": parameters[:3], "lr": 0.1}, {"params": parameters[3:], "weight_decay": 0.5}], 0.01
        )

    ours, theirs = pair(make)
    for model, optimizer in (ours, theirs):
        calls = []
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 16)).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            assert optimizer.step(closure) > 0
            schedule.step()
        assert calls == ["after"] * 3
        optimizer.add_param_group({"params": [model.register_parameter("more", None) or nn.Parameter(torch.ones(3))]})
        optimizer.param_groups[-1]["params"][0].grad = torch.ones(3)
        optimizer.step()
    assert same(ours, theirs)


@pytest.mark.filterwarnings("error")
def test_a_scheduler_made_before_sees_the_steps():
    model = net()
    optimizer = optim.Adam(model.parameters())
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    offloaded(optimizer, TIGHT)
    train(model, optimizer, 1)
    schedule.step()


@pytest.mark.parametrize("budget", [TIGHT, Budget(device="1MB")], ids=["tight", "ample"])
@pytest.mark.parametrize("name", ["adamw fused", "nadam"])
def test_a_checkpoint_goes_on_in_either(name, budget):
    ours, theirs = pair(OPTIMIZERS[name], budget)
    train(*theirs)
    file = io.BytesIO()
    torch.save([theirs[0].state_dict(), theirs[1].state_dict()], file)
    file.seek(0)
    parameters, states = torch.load(file)
    train(*ours, steps=1)  # what is there is replaced
    ours[0].load_state_dict(parameters)
    ours[1].load_state_dict(states)
    assert same(ours, theirs)
    train(*ours, seed=2)
    train(*theirs, seed=2)
    assert same(ours, theirs) and states_of(ours[1]).metrics.peak["device"] <= budget["device"]
    theirs[1].load_state_dict(copy.deepcopy(ours[1].state_dict()))
    train(*ours, seed=3)
    train(*theirs, seed=3)
    assert same(ours, theirs)


def test_masters_are_part_of_a_checkpoint():
    models = [net(dtype=torch.bfloat16) for _ in range(2)]
    one, two = (offloaded(optim.AdamW(m.parameters(), 1e-3), "1MB", master=True) for m in models)
    train(models[0], one)
    models[1].load_state_dict(models[0].state_dict())
    two.load_state_dict(one.state_dict())
    train(models[0], one, seed=2)
    train(models[1], two, seed=2)
    assert same((models[0], one), (models[1], two))


def test_states_are_loaded_onto_themselves():
    ours, theirs = pair(OPTIMIZERS["adam"])
    train(*ours)
    train(*theirs)
    ours[1].load_state_dict(ours[1].state_dict())
    train(*ours, seed=2)
    train(*theirs, seed=2)
    assert same(ours, theirs)


def test_a_frozen_parameter_with_a_gradient_is_stepped_as_before():
    ours, theirs = pair(OPTIMIZERS["adam"])
    for model, optimizer in (ours, theirs):
        train(model, optimizer)
        model[3].requires_grad_(False)
        model[3].weight.grad = torch.ones(64, 64)
        optimizer.step()
    assert same(ours, theirs)


def as_autograd_sees(weight):
    with torch.no_grad():
        weight[0] = 3.0


def by_data(weight):
    weight.data[0] = 3.0


@pytest.mark.parametrize("change", [as_autograd_sees, by_data])
def test_masters_follow_what_others_do_to_their_parameters(change):
    model = net(dtype=torch.bfloat16)
    optimizer = offloaded(optim.SGD(model.parameters(), 1e-3), "1MB", master=True)
    train(model, optimizer)
    master = optimizer.state[model[0].weight]["master"].clone()
    change(model[0].weight)
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    optimizer.step()
    assert (model[0].weight[0] == 3).all()
    assert torch.equal(optimizer.state[model[0].weight]["master"][1:], master[1:])


def test_masters_begin_from_a_plain_checkpoint():
    model, plain = net(dtype=torch.bfloat16), net()
    other = optim.AdamW(plain.parameters(), 1e-3)
    train(plain, other)
    model.load_state_dict(plain.state_dict())
    optimizer = offloaded(optim.AdamW(model.parameters(), 1e-3), Budget(device="50kB", host="1MB"), master=True)
    optimizer.load_state_dict(other.state_dict())
    train(model, optimizer)
    assert all(states["exp_avg"].dtype == torch.float32 for states in optimizer.state.values())
    assert states_of(optimizer).metrics.peak["device"] <= 50_000


def test_a_copy_is_plain():
    model = net()
    optimizer = offloaded(optim.Adam(model.parameters()), TIGHT)
    train(model, optimizer)
    twin, other = copy.deepcopy((model, optimizer))
    train(model, optimizer, seed=2)
    train(twin, other, seed=2)
    assert same((model, optimizer), (twin, other))
    with pytest.raises(PlanError, match="keeps its states itself"):
        states_of(other)


def test_what_was_planned_is_told():
    model = net()
    optimizer = offloaded(optim.Adam(model.parameters()), TIGHT)
    assert "no step yet" in states_of(optimizer).explain()
    train(model, optimizer)
    assert "of states" in states_of(optimizer).explain() and "come up and go down" in states_of(optimizer).explain()


def test_what_cannot_work_is_refused_before_anything_is_stepped():
    model = net()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(PlanError, match="takes a torch"):
        offloaded(model, TIGHT)
    with pytest.raises(PlanError, match="LBFGS may step"):
        offloaded(optim.LBFGS(model.parameters()), TIGHT)
    foreign = type("Foreign", (optim.Optimizer,), {"step": lambda self: None, "__module__": "elsewhere"})
    foreign.step.__module__ = "elsewhere"
    with pytest.raises(PlanError, match="Foreign may step"):
        offloaded(foreign(model.parameters(), {}), TIGHT)
    with pytest.raises(PlanError, match="differentiable=False"):
        offloaded(optim.SGD(model.parameters(), differentiable=True), TIGHT)
    with pytest.raises(PlanError, match="no single CPU or CUDA GPU"):
        offloaded(optim.SGD([torch.zeros(2, device="meta")]), TIGHT)
    for budget, words in ((Budget(device="10kB", host="1MB"), "one parameter take 32.8kB"), ("40kB", "have to leave")):
        optimizer = offloaded(optim.Adam(model.parameters()), budget)
        with pytest.raises(BudgetError, match=words):
            train(model, optimizer, 1)
        assert all(torch.equal(one, two) for one, two in zip(model.parameters(), before, strict=True))
    with pytest.raises(PlanError, match="offloaded already"):
        offloaded(optimizer, TIGHT)


def test_masters_are_refused_where_they_cannot_be():
    model = net(dtype=torch.bfloat16)
    with pytest.raises(PlanError, match="another optimizer than Adagrad"):
        offloaded(optim.Adagrad(model.parameters()), TIGHT, master=True)
    optimizer = offloaded(optim.Adam(model.parameters()), TIGHT, master=True)
    train(model, optimizer)
    with pytest.raises(PlanError, match="has no masters"):
        copy.deepcopy(optimizer)


def test_a_step_that_somebody_put_in_place_is_refused():
    optimizer = optim.SGD(net().parameters())
    own = optimizer.step
    optimizer.step = lambda: own()
    with pytest.raises(PlanError, match="call offloaded before"):
        offloaded(optimizer, TIGHT)


def test_hooks_registered_later_see_and_change_what_is_loaded():
    ours, theirs = pair(OPTIMIZERS["adam"])
    for model, optimizer in (ours, theirs):
        train(model, optimizer)
        saved = copy.deepcopy(optimizer.state_dict())

        def forget(_, saved):
            nothing = {number: own | {"exp_avg": own["exp_avg"] * 0} for number, own in saved["state"].items()}
            return saved | {"state": nothing}

        optimizer.register_load_state_dict_pre_hook(forget)
        optimizer.load_state_dict(saved)
        assert not optimizer.state_dict()["state"][0]["exp_avg"].any()
    assert same(ours, theirs)


def vectors(lengths, make=optim.AdamW):
    parameters = [nn.Parameter(torch.ones(length)) for length in lengths]
    for p in parameters:
        p.grad = torch.ones_like(p)
    return parameters, make(parameters)


def test_a_host_as_large_as_the_error_asks_for_holds_the_budget():
    parameters, optimizer = vectors([1000, 10, 300, 7] * 4)
    with pytest.raises(BudgetError, match="host=") as told:
        offloaded(optimizer, Budget(device="12kB")).step()
    asked = int(re.search(r"host=(\d+)", str(told.value))[1])
    parameters, optimizer = vectors([1000, 10, 300, 7] * 4)
    offloaded(optimizer, Budget(device="12kB", host=asked)).step()
    optimizer.step()
    moved = states_of(optimizer).metrics.moved
    kept = 8 * sum(map(len, parameters)) - moved["down 1"] // 2
    assert moved["down 1"] and kept <= 12_000 and moved["up 1"] == moved["down 1"] // 2


def test_states_of_parameters_frozen_later_are_in_the_budget():
    parameters, optimizer = vectors([1024] * 8)
    offloaded(optimizer, Budget(device=4 * 8192))
    for p in parameters[4:]:
        p.requires_grad_(False)
        p.grad = None
    optimizer.step()
    for p in parameters:
        p.requires_grad_(not p.requires_grad)
        p.grad = torch.ones_like(p) if p.requires_grad else None
    with pytest.raises(BudgetError, match="have to leave"):
        optimizer.step()


def test_states_that_have_not_all_axes_are_planned_as_they_are():
    matrix = nn.Parameter(torch.ones(512, 512))
    matrix.grad = torch.ones_like(matrix)
    optimizer = offloaded(optim.Adafactor([matrix]), "5kB")
    optimizer.step()
    assert "4.1kB of states" in states_of(optimizer).explain()
    optimizer = offloaded(vectors([1000] * 4, optim.Adafactor)[1], Budget(device="8.5kB", host="1MB"))
    optimizer.step()
    assert "16.4kB of states" in states_of(optimizer).explain()
    assert 4096 <= states_of(optimizer).metrics.peak["device"] <= 8_500


def test_states_that_are_there_already_leave_at_once():
    _, theirs = pair(OPTIMIZERS["adam"], Budget(device="1MB"))
    train(*theirs)
    model, optimizer = copy.deepcopy(theirs)
    offloaded(optimizer, TIGHT)
    moved = states_of(optimizer).metrics.moved
    assert moved["down 1"] == 2 * sum(p.nbytes for p in model.parameters())
    train(model, optimizer, seed=2)
    train(*theirs, seed=2)
    assert same((model, optimizer), theirs) and states_of(optimizer).metrics.peak["device"] <= TIGHT["device"]


def test_states_are_whole_after_memory_ended_anywhere_in_a_step():
    ours, theirs = pair(OPTIMIZERS["adamw foreach"])
    for model, optimizer in (ours, theirs):
        train(model, optimizer)
    before = copy.deepcopy(ours[1].state_dict()["state"])
    with pytest.raises(torch.OutOfMemoryError), EndOfMemory(4, "set_"):
        train(*ours, steps=1, seed=2)
    assert all(torch.equal(own[key], before[n][key]) for n, own in ours[1].state_dict()["state"].items() for key in own)
    train(*ours, seed=2)
    train(*theirs, seed=2)
    assert same(ours, theirs) and states_of(ours[1]).metrics.peak["device"] <= TIGHT["device"]


def test_a_subclass_with_torchs_own_step_is_taken():
    class Named(optim.AdamW):
        pass

    ours, theirs = pair(lambda p: Named(p, 0.01))
    train(*ours)
    train(*theirs)
    assert same(ours, theirs)


def test_a_gradient_scaler_steps_it():
    ours, theirs = pair(OPTIMIZERS["adamw fused"])
    for model, optimizer in (ours, theirs):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)
        for number in range(4):
            optimizer.zero_grad()
            scale = float("inf") if number == 2 else 1.0
            scaler.scale(model(torch.ones(2, 16)).square().sum() * scale).backward()
            scaler.step(optimizer)
            scaler.update()
    assert same(ours, theirs)


def test_batches_hold_the_budget_whatever_the_sizes():
    for sizes in itertools.product([1, 5, 9], repeat=4):
        for device in range(max(sizes), sum(sizes) + 2):
            plan = batches.plan_batches(sizes, Budget(device=device, host=100))
            assert [number for batch in plan.batches for number in batch] == list(range(4))
            staying = plan.total - plan.moved
            moving = [sum(sizes[number] for number in batch) for batch in plan.batches[: plan.moving]]
            assert staying + max(moving, default=0) <= device and (plan.moving > 0) == (plan.total > device)


class EndOfMemory(TorchDispatchMode):
    """Has the n-th operation find no memory, of those whose names hold some word."""

    def __init__(self, number, word=""):
        super().__init__()
        self.left, self.word = number, word

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.left -= self.word in str(func)
        if not self.left:
            self.left -= 1
            raise torch.OutOfMemoryError("out of memory")
        return func(*args, **(kwargs or {}))


def test_memory_that_ends_while_masters_are_made_loses_nothing():
    model = net(dtype=torch.bfloat16)
    optimizer = offloaded(optim.AdamW(model.parameters()), "1MB", master=True)
    train(model, optimizer)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(torch.OutOfMemoryError), EndOfMemory(4, "_to_copy"):
        optimizer.step()
    after = optimizer.state_dict()["state"]
    assert len(optimizer.state) == len(before) and after.keys() == before.keys()
    for number, states in before.items():
        assert all(torch.equal(after[number][key], state) for key, state in states.items())
    optimizer.step()
    assert all(states["step"] == 4 for states in optimizer.state.values())
