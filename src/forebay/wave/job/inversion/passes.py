"""The passes of an inversion over its shots, each a kind of work: data, sources, light, gradients and gathers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import EngineError
from forebay.planner import Plan
from forebay.tasks import ThreadTask
from forebay.units import Budget
from forebay.wave.gradient import Gradient, Misfit, gradient
from forebay.wave.inversion.light import light_of
from forebay.wave.inversion.misfits import MISFITS
from forebay.wave.inversion.shots import MISFIT, slopes_of
from forebay.wave.inversion.sources import spectra_of
from forebay.wave.job.inversion.asked import (
    ARRAYS,
    PassInputs,
    arrays_asked,
    asked_of,
    inputs_asked,
    model_asked,
    weighted,
)
from forebay.wave.job.inversion.start import at_most
from forebay.wave.job.place import budget_of
from forebay.wave.job.shots.kind import StepListener
from forebay.wave.job.work import model_of, shot_of, steps_of
from forebay.wave.job.workspace import Workspace
from forebay.wave.simulate import simulate

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PassedShot:
    """A shot that a pass has computed."""

    number: int
    arrays: Arrays
    summary: dict[str, Any]

    def write(self, workspace: Workspace) -> None:
        """Write its arrays for the run to take."""
        workspace.keep(self.number, self.arrays, self.summary)


class ForwardPass(ABC):
    """A kind of work that takes shots one by one, and runs each of them forward; `ShotKind` says what methods do."""

    reverses = False
    names: tuple[str, ...] = ()
    """of the arrays that it keeps of a shot"""

    def steps(self, workspace: Workspace) -> int:
        """Return the steps of a shot."""
        return steps_of(workspace)[0]

    def inputs(self, workspace: Workspace, number: int, *, models: bool = False) -> PassInputs:
        """Read a shot and its data."""
        return inputs_asked(workspace, number)

    def compute(
        self,
        workspace: Workspace,
        number: int,
        budget: Budget | None,
        tell: StepListener,
        ahead: ThreadTask[PassInputs] | None,
    ) -> PassedShot:
        """Run one shot."""
        start = perf_counter()
        arrays = self.run(workspace, number, self.inputs(workspace, number) if ahead is None else ahead.result())
        return PassedShot(number, arrays, {"shot": number, "seconds": perf_counter() - start})

    @abstractmethod
    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Return what is kept of a shot."""

    def together(
        self, workspace: Workspace, numbers: Sequence[int], plan: Plan | None, tell: StepListener
    ) -> tuple[list[PassedShot], Plan]:
        """Refuse: whoever runs shots asks this of reversals alone."""
        raise EngineError("shots of a pass that reverses nothing advance one by one")

    def check(self, workspace: Workspace, number: int) -> None:
        """Read what is kept of a shot."""
        workspace.arrays(number, *self.names)


class Modelling(ForwardPass):
    """What receivers hear in the true model: the data, where no file has them."""

    names = ("data",)

    def inputs(self, workspace: Workspace, number: int, *, models: bool = False) -> PassInputs:
        """Return a shot without data."""
        return PassInputs(shot_of(workspace, number), None, asked_of(workspace))

    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Model a shot in the layers that all models of the inversion have."""
        true = model_of(workspace, number, workspace.fields("true", workspace.boxes[number]))
        return {"data": simulate(inputs.shot, at_most(true, inputs.asked.fastest), **stepping_of(workspace))}


class Hearing(ForwardPass):
    """What receivers hear in a model beside what they have heard, as a report shows it."""

    names = ("heard", "observed")

    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Model a shot, and return what counts of both."""
        heard, observed = heard_in(workspace, number, inputs), np.asarray(inputs.shot.data)
        return {"heard": weighted(heard, inputs.weight), "observed": weighted(observed, inputs.weight)}


class Sounding(ForwardPass):
    """What data tell of wavelets."""

    names = ("crossed", "power")

    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Model a shot, and compare what it hears with its data."""
        heard = weighted(heard_in(workspace, number, inputs), inputs.weight)
        shot = inputs.shot.with_data(weighted(np.asarray(inputs.shot.data), inputs.weight))
        return dict(zip(self.names, spectra_of(shot, heard, shot.samples), strict=True))


class Lighting(ForwardPass):
    """The light that sources cast."""

    names = ("light",)

    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Add up the light of one shot."""
        model = model_asked(workspace, number, inputs.asked)
        return {"light": light_of([inputs.shot], model, **stepping_of(workspace))}


class Differentiating:
    """Misfits, and their derivatives with respect to the model: the reversals of an inversion, and a kind of work."""

    reverses = True

    def steps(self, workspace: Workspace) -> int:
        """Return the steps of a shot, forward and back."""
        return 2 * steps_of(workspace)[0]

    def inputs(self, workspace: Workspace, number: int, *, models: bool = False) -> PassInputs:
        """Read a shot and its data."""
        return inputs_asked(workspace, number)

    def compute(
        self,
        workspace: Workspace,
        number: int,
        budget: Budget | None,
        tell: StepListener,
        ahead: ThreadTask[PassInputs] | None,
    ) -> PassedShot:
        """Reverse one shot by the plan of all, or make that."""
        start, plan = perf_counter(), workspace.plan()
        inputs = self.inputs(workspace, number) if ahead is None else ahead.result()
        model, misfit = model_asked(workspace, number, inputs.asked), self.misfit_of(workspace, number, inputs, tell)
        owed = gradient(inputs.shot, model, misfit=misfit, **self.options_of(workspace, plan, budget))
        if plan is None:
            workspace.freeze(owed.result.plan, owed.result.metrics, number)
        return _passed(number, owed, self.kept_of(owed, inputs), perf_counter() - start)

    def misfit_of(self, workspace: Workspace, number: int, inputs: PassInputs, tell: StepListener) -> Misfit:
        """Return how a shot is compared, in what counts of it; when it is, the way forward is done."""
        table, weight = workspace.described.job.inversion, inputs.weight
        assert table is not None
        compare = MISFITS[table.misfit]

        def misfit(data: NDArray[Any], observed: NDArray[Any]) -> tuple[float, NDArray[Any]]:
            tell(number, steps_of(workspace)[0])
            value, slope = compare(weighted(data, weight), weighted(observed, weight))
            return value, weighted(slope, weight)

        return misfit

    def options_of(self, workspace: Workspace, plan: Plan | None, budget: Budget | None) -> dict[str, Any]:
        """Return what `gradient` is told of every shot."""
        described = workspace.described
        job = described.job
        directory = job.memory.directory or workspace.root
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return stepping_of(workspace) | {
            "every": described.every,
            "plan": plan,
            "budget": budget_of(job, described.device, budget) if plan is None else None,
            "codec": job.memory.codec,
            "schedule": job.memory.schedule,
            "reversals": workspace.geometry.count,
            "directory": directory,
            "progress": False,
        }

    def kept_of(self, owed: Gradient, inputs: PassInputs) -> Arrays:
        """Return what is kept of a shot."""
        return {MISFIT: np.array(owed.misfit), **slopes_of(owed, arrays_asked(inputs.asked))}

    def together(
        self, workspace: Workspace, numbers: Sequence[int], plan: Plan | None, tell: StepListener
    ) -> tuple[list[PassedShot], Plan]:
        """Reverse shots that advance together."""
        start, inputs = perf_counter(), [self.inputs(workspace, number) for number in numbers]
        about = list(zip(numbers, inputs, strict=True))
        models = [model_asked(workspace, number, own.asked) for number, own in about]
        misfits = [self.misfit_of(workspace, number, own, tell) for number, own in about]
        shots = [own.shot for own in inputs]
        owed = gradient(shots, models, misfit=misfits, **self.options_of(workspace, plan, None))
        seconds = (perf_counter() - start) / len(numbers)
        kept = [self.kept_of(own, asked) for own, asked in zip(owed, inputs, strict=True)]
        passed = [_passed(*each, seconds) for each in zip(numbers, owed, kept, strict=True)]
        return passed, owed[0].result.plan

    def check(self, workspace: Workspace, number: int) -> None:
        """Read the misfit of a shot, and its derivatives."""
        workspace.arrays(number, MISFIT, *ARRAYS[workspace.described.job.physics.kind])


def stepping_of(workspace: Workspace) -> dict[str, Any]:
    """Return what `simulate` is told of every shot."""
    described = workspace.described
    return {"dt": described.step, "order": described.job.physics.order, "dtype": np.float32}


def heard_in(workspace: Workspace, number: int, inputs: PassInputs) -> NDArray[Any]:
    """Return what the receivers of a shot hear in the model that a pass is asked about."""
    return simulate(inputs.shot, model_asked(workspace, number, inputs.asked), **stepping_of(workspace))


def _passed(number: int, owed: Gradient, arrays: Arrays, seconds: float) -> PassedShot:
    metrics = owed.result.metrics
    told = {"shot": number, "seconds": seconds, "reversal": metrics.seconds, "peak": dict(metrics.peak)}
    return PassedShot(number, arrays, told)
