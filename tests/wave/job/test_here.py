"""Shots in this process: who advances together, who is read ahead and written behind, and what is tried again."""

import threading
from types import SimpleNamespace

import pytest

from forebay.errors import BudgetError, WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.job.shots import attempt, here
from forebay.wave.job.shots.here import shots_here

LONG = 60.0
"""Seconds after which what never comes is not waited for any more."""


class Computed:
    """A shot that is computed, whose writing may fail."""

    def __init__(self, space, number, together=1):
        self.space, self.number = space, number
        self.summary = {"shot": number, "seconds": 10.0 + number}
        self.together = together

    def write(self, workspace):
        self.space.happen("write", self.number)


class Space:
    """As much of a workspace, of its bars and of its kind of work as doing shots needs."""

    def __init__(self, most=1, retries=1, reverses=True, plan="a plan"):
        self.most, self.reverses, self.made, self.draft = most, reverses, plan, None
        self.run, self.work, self.boxes = "a run", SimpleNamespace(kind="any"), [(slice(0, 4), slice(0, 6))]
        self.described = SimpleNamespace(
            grid=Grid((9, 9), 10.0),
            device="cpu",
            every=3,
            job=SimpleNamespace(run=SimpleNamespace(retries=retries)),
        )
        self.fails, self.happened, self.told, self.plans, self.two = {}, [], [], [], True
        self.lock, self.ahead = threading.Lock(), {}

    def happen(self, what, shot):
        with self.lock:
            self.happened.append((what, shot))
        if errors := self.fails.get((what, shot)):
            raise errors.pop(0)

    # The workspace.

    def plan(self):
        return self.made

    def settled(self):
        self.happen("settled", None)

    def take(self, shot):
        self.happen("take", shot)

    def take_plan(self):
        self.made = self.made or self.draft

    def take_failure(self, shot):
        self.happen("take failure", shot)

    def fail(self, shot, reason):
        self.happen("fail", shot)

    # The bars.

    def steps(self, shot, done):
        self.told.append(("steps", shot, done))

    def finished(self, shot, seconds):
        self.told.append(("finished", shot, seconds))

    def failed(self, shot, reason, again):
        self.told.append(("failed", shot, reason, again))

    # The kind of work.

    def inputs(self, workspace, number, *, models):
        self.happen("read", number)
        return models

    def compute(self, workspace, number, budget, tell, ahead):
        self.happen("compute", number)
        if ahead is not None:
            self.happen("ahead", number)
            ahead.result()
        self.draft = "its plan"
        tell(number, 5)
        return Computed(self, number)

    def together(self, workspace, numbers, plan, tell):
        self.plans.append((list(numbers), plan))
        for number in numbers:
            self.happen("together", number)
        return [Computed(self, number, len(numbers)) for number in numbers], f"plan of {len(numbers)}"

    def of(self, *what):
        return [each for each in self.happened if each[0] in what]


@pytest.fixture
def done(monkeypatch):
    """Do the work on shots."""

    def done(space, todo):
        for module in (here, attempt):
            monkeypatch.setattr(module, "kind_of", lambda work: space)
        monkeypatch.setattr(here, "steps_of", lambda workspace: (20, 60))
        monkeypatch.setattr(here, "models_ahead", lambda workspace: "models ahead")
        monkeypatch.setattr(here, "room_for_two", lambda workspace: space.two)

        def batch_of(job, device, grid, steps, every):
            assert (device, grid.shape, steps, every) == ("cpu", (4, 6), 20, 3)
            return space.most

        monkeypatch.setattr(here, "batch_of", batch_of)
        return shots_here(space, list(todo), space)

    return done


@pytest.mark.parametrize("most", [1, 3])
def test_nothing_is_written_before_the_inputs_are_on_the_disk(done, most):
    space = Space(most)
    assert done(space, range(3)) == {}
    met = [what for what, _ in space.of("settled", "write", "take")]
    assert met[0] == "settled" and "write" in met
    space = Space(most)
    space.fails = {("settled", None): [OSError("no room left") for _ in range(5)]}
    with pytest.raises(OSError, match="no room left"):
        done(space, range(3))
    assert not space.of("write", "take") and ("compute", 2) not in space.happened


def test_the_next_shot_does_not_wait_for_inputs_on_their_way_to_the_disk(done):
    space, next_one = Space(), threading.Event()
    real = space.compute

    def compute(workspace, number, *about):
        if number == 1:
            next_one.set()
        return real(workspace, number, *about)

    def settled():
        assert next_one.wait(LONG)
        space.happen("settled", None)

    space.compute, space.settled = compute, settled
    assert done(space, range(3)) == {}
    assert [what for what, _ in space.of("settled", "write", "take")][:3] == ["settled", "write", "take"]


class TestOfBatches:
    """Shots advance together in batches as even as can be; what fails of them is done alone."""

    @pytest.mark.parametrize(
        ("most", "count", "batches"),
        [
            (1, 3, []),
            (3, 2, [[0, 1]]),
            (3, 3, [[0, 1, 2]]),
            (3, 4, [[0, 1], [2, 3]]),
            (3, 7, [[0, 1, 2], [3, 4], [5, 6]]),
            (2, 1, []),
            (2, 2, [[0, 1]]),
            (4, 9, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        ],
    )
    def test_they_are_as_few_and_as_even_as_can_be(self, done, most, count, batches):
        space = Space(most)
        assert done(space, range(count)) == {}
        assert [numbers for numbers, _ in space.plans] == batches
        alone = [] if batches else list(range(count))
        assert [shot for _, shot in space.of("compute")] == alone
        assert [about[1:] for about in space.told if about[0] == "finished"] == [
            (shot, 10.0 + shot) for shot in range(count)
        ]

    def test_the_first_makes_the_plan_alone(self, done):
        space = Space(3, plan=None)
        done(space, range(4))
        assert [numbers for numbers, _ in space.plans] == [[1, 2, 3]] and space.of("compute") == [("compute", 0)]

    def test_a_plan_serves_batches_of_as_many_of_one_run(self, done):
        here._PLANS.clear()
        space = Space(3)
        done(space, range(7))
        done(space, range(7, 10))
        assert [plan for _, plan in space.plans] == [None, None, "plan of 2", "plan of 3"]
        other = Space(3)
        other.run = "another run"
        done(other, range(3))
        assert other.plans == [([0, 1, 2], None)] and {key[0] for key in here._PLANS} == {"another run"}

    def test_forward_passes_go_one_by_one(self, done):
        space = Space(3, reverses=False)
        done(space, range(3))
        assert space.plans == [] and len(space.of("compute")) == 3

    def test_those_of_a_batch_that_fails_are_done_alone_and_in_their_order(self, done):
        space = Space(2)
        space.fails = {("together", 1): [MemoryError("full")]}
        assert done(space, range(4)) == {}
        assert ("failed", 0, "with 1 others: MemoryError: full", True) in space.told
        assert [shot for _, shot in space.of("compute")] == [0, 1]
        assert sorted(shot for _, shot in space.of("take")) == [0, 1, 2, 3]

    def test_one_of_a_batch_that_cannot_be_written_is_tried_again(self, done):
        space = Space(3)
        space.fails = {("write", 1): [OSError("no room")]}
        assert done(space, range(3)) == {}
        assert ("failed", 1, "OSError: no room", True) in space.told and space.of("compute") == [("compute", 1)]


class TestOfOneByOne:
    """The next shot is read, and the last one written, while one is computed."""

    def test_the_next_one_is_read_ahead_once_and_taken(self, done):
        space = Space()
        assert done(space, range(3)) == {}
        assert sorted(space.of("read")) == [("read", 1), ("read", 2)]
        assert [shot for _, shot in space.of("ahead")] == [1, 2]

    def test_without_room_everything_comes_one_after_the_other(self, done):
        space = Space()
        space.two = False
        done(space, range(3))
        assert space.of("compute", "write", "take") == [
            (what, shot) for shot in range(3) for what in ("compute", "write", "take")
        ]

    def test_steps_and_seconds_are_told(self, done):
        space = Space()
        done(space, [4, 2])
        assert {("steps", 4, 5), ("steps", 2, 5)} <= set(space.told)
        assert [about for about in space.told if about[0] == "finished"] == [
            *(("finished", 4, 14.0), ("finished", 2, 12.0))
        ]

    @pytest.mark.parametrize(("retries", "times", "failed"), [(0, 1, True), (1, 1, False), (1, 2, True), (3, 3, False)])
    def test_what_fails_is_tried_again_at_once_as_often_as_the_job_says(self, done, retries, times, failed):
        space = Space(retries=retries)
        space.fails = {("compute", 1): [MemoryError("full") for _ in range(times)]}
        assert done(space, range(3)) == ({1: "MemoryError: full"} if failed else {})
        tries = min(times, retries + 1) if failed else times + 1
        assert [shot for _, shot in space.of("compute")] == [0, *[1] * tries, 2]
        told = [about[3] for about in space.told if about[0] == "failed"]
        assert told == [number <= retries for number in range(1, min(times, retries + 1) + 1)]
        assert len(space.of("take failure")) == len(space.of("fail")) == len(told)

    def test_what_cannot_be_written_is_tried_again(self, done):
        space = Space(retries=1)
        space.fails = {("take", 0): [OSError("no room")], ("write", 2): [OSError("a"), OSError("b")]}
        assert done(space, range(3)) == {2: "OSError: b"}
        assert sorted(shot for _, shot in space.of("compute")) == [0, 0, 1, 2, 2]
        assert [shot for _, shot in space.of("fail")].count(2) == 2

    def test_what_would_fail_again_is_not_tried_again(self, done):
        space = Space(retries=5)
        space.fails = {("compute", 1): [WaveError("no sense")]}
        assert done(space, range(3)) == {1: "WaveError: no sense"}
        assert ("failed", 1, "WaveError: no sense", False) in space.told

    @pytest.mark.parametrize("plan", [None, "a plan"])
    def test_a_budget_that_no_plan_fits_into_ends_it_before_there_is_one(self, done, plan):
        space = Space(plan=plan, retries=0)
        space.fails = {("compute", 0): [BudgetError("too small")]}
        if plan is None:
            with pytest.raises(BudgetError, match="too small"):
                done(space, range(3))
            assert len(space.of("compute")) == 1
        else:
            assert done(space, range(3)) == {0: "BudgetError: too small"}

    def test_an_interruption_is_marked_and_raised(self, done):
        space = Space()
        space.fails = {("compute", 1): [KeyboardInterrupt()]}
        with pytest.raises(KeyboardInterrupt):
            done(space, range(3))
        assert space.of("fail", "take failure") == [("fail", 1), ("take failure", 1)]
        assert ("take", 0) in space.happened and ("compute", 2) not in space.happened
