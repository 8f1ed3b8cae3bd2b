"""Fields within a budget: whether they fit, and what pages them where they do not."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, DeviceError, WaveError
from forebay.filesystems import spill_directory
from forebay.tier.capacity import check_free
from forebay.units import Budget, to_text
from forebay.wave.acoustic.kernels import check_type
from forebay.wave.acoustic.layers import layers_of
from forebay.wave.earth.arrays import computable, on_host
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.imaging import Imaging, Sensing, check_every
from forebay.wave.kernels.rows import WORD, Rows
from forebay.wave.kernels.stencil import second_derivative
from forebay.wave.paged.kernels import PagedKernels, Place
from forebay.wave.paged.pages import Look, Window, pages_of
from forebay.wave.paged.place import DevicePlace, DiskPlace
from forebay.wave.paged.plan import PagingPlan


@dataclass
class Paging:
    """What makes kernels of fields that are larger than the memory in which they are computed."""

    budget: int
    """bytes of that memory"""
    place: Callable[[], Place]
    needed: int
    """bytes of that memory which a run without paging takes"""
    every: int | None = None
    """steps after which all planes go home, if they do before the end"""
    look: type[Look] | None = None
    """what a reversal makes of its steps back"""
    made: list[PagedKernels] = field(default_factory=list)

    def __call__(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> PagedKernels:
        """Make them, and keep them to be closed; refuse a budget that does not hold a slab, on the way back too."""
        self.made.append(PagedKernels(grid, radius, dtype, self.budget, self.place(), self.every))
        self.told()
        return self.made[-1]

    def told(self) -> PagingPlan:
        """Return the plan whose cost is told: of a reversal that of the way back, which costs more."""
        return replace(self.made[-1].plan(self.look), needed=self.needed, back=self.look is not None)

    def close(self) -> None:
        """Let go of what the kernels took."""
        with ExitStack() as held:
            for kernels in self.made:
                held.callback(kernels.close)


def field_bytes(grid: Grid, order: int = 8, dtype: Any = np.float32, *, on_gpu: bool = False) -> int:
    """Return the bytes of the fields, the squared velocity and the layers of an acoustic model in three dimensions."""
    radius, fields, rows = order // 2, grid.fields(order // 2), Rows()
    if on_gpu:
        from forebay.wave.acoustic.gpu import PITCH

        rows = Rows.of(fields[-1], radius, WORD, PITCH, PITCH)
    shape, layers = rows.shape(fields), layers_of(grid, radius, rows, 1.0, 1.0)
    return Window(pages_of(shape, layers), np.dtype(dtype).itemsize, shape[0]).nbytes


@contextmanager
def within(
    model: Any,
    budget: Budget | str | int | None,
    order: int,
    dtype: Any,
    directory: Path | str | None,
    every: int | None = None,
) -> Iterator[tuple[Any, Paging | None]]:
    """Lend a model in the memory where its waves are computed within a budget, and what pages its fields, if any."""
    if budget is None:
        yield model, None
        return
    paging = paging_of(model, budget, order, dtype, directory, every)
    if paging is None:
        yield (on_device(model) if Budget.of(budget, tier_of(model)).device is not None else model), None
        return
    try:
        yield (model if tier_of(model) == "host" else replace(model, velocity=on_host(model.velocity))), paging
    finally:
        paging.close()


def paging_of(
    model: Any,
    budget: Budget | str | int,
    order: int,
    dtype: Any,
    directory: Path | str | None,
    every: int | None = None,
) -> Paging | None:
    """Return what pages the fields of a model, or None where the first tier of a budget holds them."""
    if not is_paged(model):
        raise WaveError(
            "a budget for the fields of waves is for one shot in an acoustic model of constant density in three "
            "dimensions: leave it out, or give such a model"
        )
    allowed = Budget.of(budget, tier_of(model))
    first, *below = allowed.tiers
    if first == "disk":
        raise BudgetError("waves are computed in the host's memory or a device's: name the bytes of one of them, too")
    if first == "device":
        check_gpu()
    elif tier_of(model) == "device":
        raise BudgetError("the model is on a device: name the device's bytes in the budget, or give it on the host")
    check_stencil(order, dtype)
    needed = field_bytes(model.grid, order, dtype, on_gpu=first == "device")
    if needed <= allowed[first]:
        return None
    home = "host" if first == "device" else "disk"
    if home not in below or allowed[home] < needed:
        raise BudgetError(
            f"the fields take {to_text(needed)}, and the budget allows {to_text(allowed[first])} of the {first}: give "
            f"it {needed} bytes, or as many of the {home}, from which they are paged"
        )
    if first == "device":
        check_free(needed, "what the fields of this model have at home")
        return Paging(allowed["device"], lambda: DevicePlace(needed, devices()), needed, every)
    return Paging(allowed["host"], lambda: DiskPlace(Path(directory or spill_directory()), needed), needed, every)


def check_gpu() -> None:
    """Refuse a budget of a device where there is none."""
    if not gpu_count():
        raise DeviceError("a budget of a device, but no GPU: leave the device out of it")


def check_stencil(order: Any, dtype: Any) -> None:
    """Refuse orders and types that no waves are computed with."""
    if not isinstance(order, Integral):
        raise WaveError(f"a stencil of order {order!r}: give an even number of at least 2")
    second_derivative(int(order))
    check_type(np.dtype(dtype))


def is_paged(model: Any) -> bool:
    """Tell whether there are passes for the waves of a model: of other kinds, or of several shots, there are none."""
    return type(model) is AcousticModel and model.grid.ndim == 3


def devices() -> list[int]:
    """Return all GPUs, the current one first."""
    from forebay.cuda.driver import current_device

    own = int(current_device().device_id)
    return [own, *(device for device in range(gpu_count()) if device != own)]


def tier_of(model: Any) -> str:
    """Return where the arrays of a model are."""
    return "host" if isinstance(computable(model.velocity), np.ndarray) else "device"


def on_device(model: AcousticModel) -> AcousticModel:
    """Return a model on the current device."""
    if tier_of(model) == "device":
        return model
    import cupy

    return replace(model, velocity=cupy.asarray(model.velocity))


def fit_fields(
    model: AcousticModel,
    budget: Budget | str | int,
    *,
    order: int = 8,
    dtype: Any = np.float32,
    call: str = "simulate",
    every: int | None = None,
) -> PagingPlan | None:
    """Tell how the fields of a model would be paged within a budget, or None where they fit; nothing is computed.

    Parameters
    ----------
    model, order, dtype
        As for `simulate`.
    budget
        Bytes of the memory in which waves are computed, and of that in which fields larger than it are at home.
    call, every
        What is to run: "simulate", or "migrate" or "gradient" with that many steps between two contributions, as a
        `Migration` tells them. Of these the plan is that of the steps back, which move more than those forward.

    Examples
    --------
    >>> from forebay import Budget
    >>> model = AcousticModel(np.full((300, 30, 30), 2000.0), Grid((300, 30, 30), 10.0))
    >>> fit_fields(model, "50MB") is None
    True
    >>> plan = fit_fields(model, Budget(host="15MB", disk="100MB"))
    >>> plan.needed, plan.slabs > 1, plan.window.nbytes <= 15_000_000
    (44727808, True, True)
    """
    if call not in LOOKS:
        raise WaveError(f"call={call!r}: take one of {', '.join(map(repr, LOOKS))}")
    if (LOOKS[call] is None) is not (every is None):
        raise WaveError('every= is for call="migrate" or "gradient", which need it: give both or neither')
    check_every(every)
    if LOOKS[call] is None:
        paging = paging_of(model, budget, order, dtype, None)
    elif pages_reversal(model, budget):
        paging = reversal_paging(model, budget, order, dtype, LOOKS[call])
    else:
        raise WaveError(f"{call} pages the fields of a model on the host where Budget(...) names a device and the host")
    if paging is None:
        return None
    paging.every = every
    try:
        paging(model.grid, order // 2, np.dtype(dtype))
        return paging.told()
    finally:
        paging.close()


LOOKS: dict[str, type[Look] | None] = {"simulate": None, "migrate": Imaging, "gradient": Sensing}
"""What calls make of steps back."""
WAVES = 3
"""Times the bytes of a wave's fields that both waves of a reversal have at home, with the sums and what is copied."""


@contextmanager
def reversal_within(
    model: Any, order: int, dtype: Any, reversal: dict[str, Any], look: type[Look]
) -> Iterator[tuple[Paging | None, dict[str, Any]]]:
    """Lend what pages the fields of a reversal, and what its engine is told, if a device is to compute a host's model.

    The engine then reverses states in host memory: its budget begins there, with what fields at home leave of it.
    """
    budget: Any = reversal.get("budget")
    if not pages_reversal(model, budget):
        yield None, reversal
        return
    paging = reversal_paging(model, budget, order, dtype, look)
    try:
        rest = Budget(host=budget.host - paging.needed, disk=budget.disk)
        yield paging, reversal | {"budget": rest, "rehearse": None}
    finally:
        paging.close()


def pages_reversal(model: Any, budget: Any) -> bool:
    """Tell whether a device is to compute a reversal of a host's model."""
    return is_paged(model) and tier_of(model) == "host" and isinstance(budget, Budget) and budget.device is not None


def reversal_paging(model: Any, budget: Any, order: int, dtype: Any, look: type[Look] | None) -> Paging:
    """Return what pages the fields of a reversal; refuse a budget of which they need no more, or too much."""
    check_gpu()
    check_stencil(order, dtype)
    needed = field_bytes(model.grid, order, dtype, on_gpu=True)
    at_home = WAVES * needed
    if at_home <= budget.device:
        raise BudgetError(
            f"the fields of both waves fit {to_text(budget.device)} of a device: give a model that is there, as "
            "cupy.asarray(velocity), whose budget is for snapshots alone"
        )
    if budget.host is None or budget.host <= at_home:
        raise BudgetError(
            f"fields that are paged take {to_text(at_home)} of the host, and snapshots come on top: give it more than "
            f"{at_home} bytes"
        )
    check_free(at_home, "what the fields of both waves have at home")
    return Paging(budget.device, lambda: DevicePlace(at_home, devices()), at_home, look=look)
