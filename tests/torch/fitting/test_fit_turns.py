"""Plans that take turns before one of them stays."""

import copy
from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tests.torch.cases import mostly_slow  # noqa: E402
from tests.torch.clocked import NAMES, Clock, Net, wait_for_copies  # noqa: E402
from tests.torch.fitting.test_fit_room import LEAST, Counting, least_budget  # noqa: E402
from tests.torch.models import AMPLE, Transformer, equal, problem, step  # noqa: E402
from tests.torch.models import deterministic as deterministic  # noqa: E402

from forebay import Budget  # noqa: E402
from forebay.planner import Link  # noqa: E402
from forebay.torch import fit, plan_of  # noqa: E402
from forebay.torch.fit import _of  # noqa: E402
from forebay.torch.fitting import device_tools, fitted_block, planning, replanning  # noqa: E402
from forebay.torch.fitting.profile import WHOLE_TIMINGS  # noqa: E402
from forebay.torch.fitting.replanning import REPLANNED_AFTER, SETTLED_AFTER  # noqa: E402
from forebay.torch.gauge import HostGauge  # noqa: E402

LEARNED = REPLANNED_AFTER[-1] + 1
"""Iterations up to the last look, where the plan does not change: one without a plan, one that is not timed."""
SLOW, SLOWER, FAST = "offload", "recompute", "keep"
"""What a clocked step takes the longer, the more it waits or computes."""


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(HostGauge, "mark", lambda gauge: clock.now)
    wait_for_copies(monkeypatch, clock, 1)
    return clock


@pytest.fixture
def rivals(monkeypatch):
    """Have plans take turns in which all blocks have the same choice."""

    def among(*names):
        def last_plans(profile, *others):
            plans = [replanning.make_plan(replace(profile, plan=None), *others[:-1], name) for name in names]
            return tuple(plans[:1] if profile.settled else plans)

        monkeypatch.setattr(replanning, "last_plans", last_plans)

    return among


def profile_of(model):
    return _of(model).session._iteration.profile


def followed(model):
    (name,) = set(_of(model).session._iteration.plan.names)
    return name


def learned(clock, x):
    model = Net(clock)
    fit(model, AMPLE, blocks=NAMES)
    for _ in range(LEARNED):
        model(x).sum().backward()
    return model


def test_plans_take_turns_until_the_fastest_stays(clock, rivals):
    rivals(SLOWER, SLOW, FAST)
    x = torch.ones(64, 4)
    model, names = learned(clock, x), []
    for _ in range(3 * (WHOLE_TIMINGS + 1)):
        model(x).sum().backward()
        names.append(followed(model))
    three = [SLOWER, SLOW, FAST]
    rounds = [tuple(names[start : start + 3]) for start in range(0, len(names), 3)]
    assert all(sorted(one) == sorted(three) for one in rounds) and len(set(rounds)) > 2  # in no order of their own
    profile = profile_of(model)
    assert all(plan_of(model).names == (FAST,) * 4 for _ in range(2))  # before the next iteration begins
    assert {names[0]: len(taken) for names, taken in profile.whole_seconds.items()} == dict.fromkeys(
        three, WHOLE_TIMINGS
    )
    assert profile.tried == profile.whole_seconds and profile.settled and not profile.rivals
    model(x).sum().backward()
    assert followed(model) == FAST
    assert plan_of(model).seconds == plan_of(model).measured == pytest.approx(3 * (1 + 2 + 3 + 5 + 3 + 5))


@pytest.mark.parametrize(
    ("offload", "recompute", "stays"),
    [
        ([8.0, 9.0, 9.0, 9.5], [9.0, 10.0, 10.0, 10.5], "offload"),  # half of it was faster than nearly all of that
        ([8.0, 9.6, 9.6, 9.8], [9.0, 9.5, 10.0, 10.5], "recompute"),  # it may have been luck
        ([9.0, 9.0, 9.0, 9.0], [9.1, 9.1, 9.1, 9.1], "offload"),  # little, but every time
        ([9.0, 9.0, 9.0, 9.0], [8.0, 8.0, 8.0, 8.0], "recompute"),
    ],
)
def test_a_plan_that_takes_more_of_the_host_has_to_be_clearly_faster(clock, rivals, offload, recompute, stays):
    rivals("offload", "recompute")
    model = learned(clock, torch.ones(64, 4))
    profile = profile_of(model)
    profile.rivals = replanning.last_plans(profile, AMPLE, False, Link(1e9, 1e9), None)
    profile.whole_seconds = {(name,) * 4: times for name, times in (("offload", offload), ("recompute", recompute))}
    assert profile.settle().names == (stays,) * 4


def test_once_a_plan_stays_no_step_is_timed(clock, rivals, monkeypatch):
    rivals(SLOWER, FAST)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for _ in range(2 * (WHOLE_TIMINGS + 1) + 1):
        model(x).sum().backward()
    marks = []
    monkeypatch.setattr(HostGauge, "mark", lambda gauge: marks.append(clock.now) or clock.now)
    for _ in range(3):
        model(x).sum().backward()
    assert not marks and plan_of(model).measured == plan_of(model).seconds
    model(torch.ones(32, 4)).sum().backward()
    assert marks  # other shapes are measured


def test_to_ask_for_the_plan_disturbs_no_turns(clock, rivals):
    rivals(SLOWER, FAST)
    x = torch.ones(64, 4)
    model, names = learned(clock, x), []
    for number in range(2 * (WHOLE_TIMINGS + 1)):
        loss = model(x).sum()
        plan_of(model)
        loss.backward()
        names.append(followed(model))
        assert set(plan_of(model).names) <= {SLOWER, FAST}
        assert bool(profile_of(model).whole_seconds) == (number > 1)  # in the first turns memory may have to be taken
    assert Counter(names) == {SLOWER: WHOLE_TIMINGS + 1, FAST: WHOLE_TIMINGS + 1} and set(plan_of(model).names) == {
        FAST
    }


def test_a_plan_that_fails_does_not_stay_and_is_not_tried_for_ever(clock, rivals):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if profile_of(model).rivals and followed(model) == FAST:
                raise torch.OutOfMemoryError("as a GPU says")
            return gradient

    rivals(FAST, SLOWER)
    x = torch.ones(64, 4)
    model, failed = learned(clock, x), 0
    for _ in range(2 * (WHOLE_TIMINGS + 1) + 3):
        try:
            Fails.apply(model(x)).sum().backward()
        except torch.OutOfMemoryError:
            failed += 1
    assert failed == WHOLE_TIMINGS + 1 and followed(model) == SLOWER


def test_turns_end_where_three_forwards_have_one_backward(clock, rivals):
    rivals(SLOWER, SLOW, FAST)
    x = torch.ones(64, 4)
    model = Net(clock)
    fit(model, AMPLE, blocks=NAMES)
    for _ in range(LEARNED + 3 * (WHOLE_TIMINGS + 1) + 1):
        sum(model(x).sum() for _ in range(3)).backward()
    profile = profile_of(model)
    assert set(profile.turns.values()) == {WHOLE_TIMINGS + 1} and {
        len(taken) for taken in profile.whole_seconds.values()
    } == {WHOLE_TIMINGS}
    assert profile.settled and followed(model) == FAST


def test_turns_end_where_no_backward_pass_ever_begins(clock, rivals):
    rivals(SLOWER, FAST)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for _ in range(2 * (WHOLE_TIMINGS + 1) * 4 + 1):
        model(x)
    assert profile_of(model).settled


def test_new_plans_in_the_middle_have_all_their_turns(clock, rivals):
    rivals(SLOWER, SLOW)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for _ in range(2 * WHOLE_TIMINGS):
        model(x).sum().backward()
    rivals(SLOWER, FAST)
    profile = profile_of(model)
    profile.plan_base = -(2**40)  # memory has grown
    for _ in range(2 * WHOLE_TIMINGS):
        model(x).sum().backward()
    assert followed(model) == FAST and len(profile.whole_seconds[(FAST,) * 4]) == WHOLE_TIMINGS and profile.settled
    assert profile.turns[(FAST,) * 4] == WHOLE_TIMINGS + 1


def test_turns_end_whatever_happens_to_plans(clock, rivals, monkeypatch):
    monkeypatch.setattr("forebay.torch.fitting.profile.MOST_TURNS", 7)
    rivals(SLOWER, SLOW, FAST)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for _ in range(8):
        model(x).sum().backward()
    assert profile_of(model).settled


def test_iterations_with_other_work_decide_nothing(clock, rivals):
    """A second backward pass with every other iteration, as of a loss that is added now and then."""
    rivals(SLOWER, FAST)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for number in range(2 * (WHOLE_TIMINGS + 1) + 2):
        loss = model(x).sum()
        loss.backward(retain_graph=number % 2 == 0)
        if number % 2 == 0:
            loss.backward()
    assert followed(model) == FAST
    assert {len(set(taken)) for taken in profile_of(model).whole_seconds.values()} == {1}


def test_what_is_forgotten_takes_no_turns(clock, rivals):
    rivals(SLOWER, FAST)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for _ in range(4):
        loss = model(x).sum()
        loss.backward()
    profile = profile_of(model)
    assert profile.rivals and profile.turns.total() == 4 and profile.whole_seconds
    profile.forget()
    assert not profile.rivals and not profile.turns and not profile.whole_seconds and not profile.settled
    loss = model(x).sum()
    assert _of(model).session._iteration.measuring
    loss.backward()
    assert not profile.whole_seconds  # the iteration before it is read now: its plan is none of theirs any more


def test_the_blocks_that_a_plan_is_told_of_follow_its_turn(clock, rivals, monkeypatch):
    of_each = {FAST: frozenset({3}), SLOWER: frozenset({1, 3})}
    monkeypatch.setattr(replanning, "hooked_blocks", lambda plan, records, passes: of_each[plan.names[0]])
    rivals(FAST, SLOWER)
    x = torch.ones(64, 4)
    model = learned(clock, x)
    for _ in range(2 * (WHOLE_TIMINGS + 1) + 2):
        model(x).sum().backward()
        assert _of(model).session._iteration.hooked == of_each[followed(model)]


def test_the_plan_that_stays_is_kept_when_memory_grows(clock, rivals):
    x = torch.ones(64, 4)
    model = learned(clock, x)
    profile = profile_of(model)
    names = {name: (name,) * 4 for name in (SLOWER, FAST)}
    profile.tried = {names[FAST]: [9.0], names[SLOWER]: [1.0]}  # a wrong measurement
    for _ in range(2 * (WHOLE_TIMINGS + 1) + 2):
        model(x).sum().backward()
    assert followed(model) == FAST and set(profile.tried) == set(names.values())
    profile.plan_base = -(2**40)
    model(x).sum().backward()
    assert (
        set(plan_of(model).names) == {FAST} and not profile.whole_seconds
    )  # the iteration that follows planning tells nothing
    for _ in range(WHOLE_TIMINGS + 1):
        model(x).sum().backward()
    assert followed(model) == FAST and profile.settled
    assert [len(taken) for taken in profile.whole_seconds.values()] == [WHOLE_TIMINGS]  # measured again


class Exceeding(Counting):
    """A gauge by which iterations take more than their plans foresaw."""

    more = 0

    def most(self):
        taken = super().most()
        return taken if taken == 1 else taken + Exceeding.more


def test_a_plan_that_takes_more_than_the_budget_in_its_turn_is_not_taken_again(monkeypatch):
    monkeypatch.setattr(device_tools, "gauge_for", Exceeding)
    monkeypatch.setattr(Counting, "taken", 0)
    monkeypatch.setattr(planning, "ALLOCATOR_SLACK", 10_000)
    monkeypatch.setattr(Counting, "link", lambda gauge, mover: Link(1e9, 1e9))
    device, more = least_budget(LEAST + 10_000 + 200_000), 10_200_000
    Counting.model, x = problem(Transformer)
    fit(Counting.model, Budget(device=device, host="1GB"))
    for _ in range(2 * SETTLED_AFTER):
        step(Counting.model, x)
        profile = profile_of(Counting.model)
        if not Exceeding.more and not profile.rivals:
            profile.tried.setdefault(("recompute",) * 4, [9.0])  # so that it is not the only one
        else:
            monkeypatch.setattr(Exceeding, "more", more)
    assert Exceeding.more and not profile.rivals
    assert plan_of(Counting.model).foreseen.peak + more <= device


def test_gradients_are_those_of_the_plain_model_whatever_plan_has_its_turn(rivals):
    rivals("keep", "recompute", "offload", "keep costly, recompute the rest", "recompute, inputs offloaded")
    model, x = problem(Transformer)
    plain = copy.deepcopy(model)
    fit(model, AMPLE)
    names = set()
    for number in range(SETTLED_AFTER + WHOLE_TIMINGS + 1):
        torch.manual_seed(number)
        ours = step(model, x)
        torch.manual_seed(number)
        assert equal(ours, step(plain, x))
        plan = _of(model).session._iteration.plan
        names |= set(plan.names) if plan else set()
    assert len(names) == 5


@pytest.mark.parametrize("change", mostly_slow(["freeze", "mode"], "mode"))
def test_what_changes_behind_the_first_block_of_a_settled_model_is_noticed(change):
    model, x = problem(Transformer)
    plain = copy.deepcopy(model)
    fit(model, AMPLE, choice="recompute")

    def set_all(now):
        for one in (model, plain):
            if change == "freeze":
                one.blocks[2].requires_grad_(now)
            else:
                one.blocks[2].train(now)

    def check():
        for one in (model, plain):
            one.zero_grad(set_to_none=True)
        mine, its = step_of(model, x), step_of(plain, x)
        assert [one is None for one in mine] == [one is None for one in its]
        assert equal([one for one in mine if one is not None], [one for one in its if one is not None])

    for _ in range(SETTLED_AFTER + 1):
        check()
    session = _of(model).session
    assert session._iteration.guessed and not session._iteration.broken and len(session._profiles) == 1
    set_all(False)
    check()
    assert session._iteration.broken and session._guess.wrong == 1
    check()
    assert not session._iteration.guessed and session._iteration.measuring and len(session._profiles) == 2
    for _ in range(SETTLED_AFTER + 1):
        check()
    assert session._iteration.guessed and not session._iteration.broken
    for number in range(4):  # who goes to and fro is no longer guessed at
        set_all(number % 2 == 0)
        check()
        assert session._iteration.broken == (number < 2)
        check()
    assert session._guess.wrong == fitted_block.MOST_WRONG and len(session._profiles) == 2
    assert not session._iteration.broken and not session._iteration.measuring


def test_a_first_block_in_another_mode_does_not_run_as_it_did():
    model, x = problem(Transformer)
    model.blocks[0].eval()
    fit(model, AMPLE, choice="keep")
    for _ in range(SETTLED_AFTER + 2):
        step(model, x)
    session = _of(model).session
    assert session._iteration.guessed
    model.blocks[0].train()
    step(model, x)
    assert session._iteration.measuring and not session._iteration.guessed and not session._guess.wrong


def step_of(model, x):
    torch.manual_seed(3)
    model(x).square().mean().backward()
    return [one.grad for one in model.parameters()]
