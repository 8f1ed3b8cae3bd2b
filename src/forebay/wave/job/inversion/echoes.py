"""The passes of a least-squares migration over its shots, and the shots as the search for a change sees them."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.planner import Plan
from forebay.units import Budget
from forebay.wave.born import born
from forebay.wave.earth.arrays import on_host
from forebay.wave.gradient import Gradient, Misfit
from forebay.wave.job.inversion.asked import PassInputs, PassRequest, inputs_asked, model_asked, weighted
from forebay.wave.job.inversion.passes import Arrays, Differentiating, ForwardPass, heard_in, stepping_of
from forebay.wave.job.place import putter
from forebay.wave.job.shots.kind import StepListener
from forebay.wave.job.work import steps_of
from forebay.wave.job.workspace import ShotWork, Workspace

LEFT, SCATTERED, STEP, DIRECTION = "left", "scattered", "step", "direction"
"""Names of what passes are asked beside the model: what was left, what was scattered, how much of it goes, and along
what."""


class Echoing(ForwardPass):
    """The echoes: what was heard, less what is heard in the model."""

    names = ("left", "squared")

    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Model a shot, and take that from its data."""
        echo = np.asarray(inputs.shot.data) - heard_in(workspace, number, inputs)
        left = weighted(echo, inputs.weight).astype(np.float64)
        return {"left": left, "squared": np.array(np.vdot(left, left))}


class Scattering(ForwardPass):
    """What a change of the model scatters once."""

    names = ("scattered", "squared", "along")

    def run(self, workspace: Workspace, number: int, inputs: PassInputs) -> Arrays:
        """Model what a shot hears of a change, and compare it with what is left of the echoes."""
        asked, model = inputs.asked, model_asked(workspace, number, inputs.asked)
        along = np.ascontiguousarray(asked.arrays[DIRECTION][workspace.boxes[number]])
        put, parameter = putter(workspace.described.device), parameter_of(workspace)
        heard = born(inputs.shot, model, put(along), parameter=parameter, **stepping_of(workspace))
        scattered, left = weighted(heard, inputs.weight).astype(np.float64), _left_of(workspace, number, asked)
        squared, along = (np.array(np.vdot(scattered, other)) for other in (scattered, left))
        return {"scattered": scattered, "squared": squared, "along": along}


class SendingBack(Differentiating):
    """The transpose of that, of what is left of the echoes."""

    names = ("left", "slope")

    def inputs(self, workspace: Workspace, number: int, *, models: bool = False) -> PassInputs:
        """Read a shot, and what is left of its echoes."""
        inputs = inputs_asked(workspace, number)
        return replace(inputs, shot=inputs.shot.with_data(_left_of(workspace, number, inputs.asked)))

    def misfit_of(self, workspace: Workspace, number: int, inputs: PassInputs, tell: StepListener) -> Misfit:
        """Return what sends back what is left."""

        def misfit(data: NDArray[Any], left: NDArray[Any]) -> tuple[float, NDArray[Any]]:
            tell(number, steps_of(workspace)[0])
            return 0.0, weighted(left, inputs.weight)

        return misfit

    def options_of(self, workspace: Workspace, plan: Plan | None, budget: Budget | None) -> dict[str, Any]:
        """Return what `gradient` is told of every shot."""
        return super().options_of(workspace, plan, budget) | {"parameter": parameter_of(workspace)}

    def kept_of(self, owed: Gradient, inputs: PassInputs) -> Arrays:
        """Return what is left, and what it owes to the model."""
        return {"left": np.asarray(inputs.shot.data), "slope": on_host(owed.gradient)}

    def check(self, workspace: Workspace, number: int) -> None:
        """Read what is kept of a shot."""
        workspace.arrays(number, *self.names)


def parameter_of(workspace: Workspace) -> str:
    """Return what of the model is changed."""
    table = workspace.described.job.lsrtm
    assert table is not None
    return table.parameter


def told_of(work: ShotWork) -> NDArray[np.uint8]:
    """Return an array that tells which pass left something."""
    return np.frombuffer(json.dumps([work.kind, work.name, work.of]).encode(), np.uint8)


def _work_told(told: NDArray[Any]) -> ShotWork:
    return ShotWork(*json.loads(bytes(told)))


def _left_of(workspace: Workspace, number: int, asked: PassRequest) -> NDArray[Any]:
    """Return what is left of a shot's echoes, after what was scattered last went."""
    (left,) = replace(workspace, work=_work_told(asked.arrays[LEFT])).arrays(number, "left")
    if SCATTERED not in asked.arrays:
        return left
    (scattered,) = replace(workspace, work=_work_told(asked.arrays[SCATTERED])).arrays(number, "scattered")
    return np.asarray(left - float(asked.arrays[STEP]) * scattered)
