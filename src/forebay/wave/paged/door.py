"""Fields within a budget: whether they fit, and what pages them where they do not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, DeviceError, WaveError
from forebay.filesystems import spill_directory
from forebay.tier.capacity import check_free
from forebay.units import Budget, to_text
from forebay.wave.acoustic.layers import layers_of
from forebay.wave.earth.arrays import computable, on_host
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.kernels.rows import WORD, Rows
from forebay.wave.paged.kernels import PagedKernels, Place
from forebay.wave.paged.pages import Window, pages_of
from forebay.wave.paged.place import DevicePlace, DiskPlace
from forebay.wave.paged.plan import PagingPlan


@dataclass
class Paging:
    """What makes kernels of fields that are larger than the memory in which they are computed."""

    budget: int
    """bytes of that memory"""
    place: Callable[[], Place]
    made: list[PagedKernels] = field(default_factory=list)

    def __call__(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> PagedKernels:
        """Make them, and keep them to be closed."""
        self.made.append(PagedKernels(grid, radius, dtype, self.budget, self.place()))
        return self.made[-1]

    def close(self) -> None:
        """Let go of what the kernels took."""
        for kernels in self.made:
            kernels.close()


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
    model: Any, budget: Budget | str | int | None, order: int, dtype: Any, directory: Path | str | None
) -> Iterator[tuple[Any, Paging | None]]:
    """Lend a model in the memory where its waves are computed within a budget, and what pages its fields, if any."""
    if budget is None:
        yield model, None
        return
    paging = paging_of(model, budget, order, dtype, directory)
    if paging is None:
        yield (on_device(model) if Budget.of(budget, tier_of(model)).device is not None else model), None
        return
    try:
        yield (model if tier_of(model) == "host" else replace(model, velocity=on_host(model.velocity))), paging
    finally:
        paging.close()


def paging_of(
    model: Any, budget: Budget | str | int, order: int, dtype: Any, directory: Path | str | None, waves: int = 1
) -> Paging | None:
    """Return what pages the fields of a model, or None where the first tier of a budget holds them.

    At home there is memory for so many waves.
    """
    if not is_paged(model):
        raise WaveError(
            "a budget for the fields of waves is for one shot in an acoustic model of constant density in three "
            "dimensions: leave it out, or give such a model"
        )
    allowed = Budget.of(budget, tier_of(model))
    first, *below = allowed.tiers
    if first == "disk":
        raise BudgetError("waves are computed in the host's memory or a device's: name the bytes of one of them, too")
    if first == "device" and not gpu_count():
        raise DeviceError("a budget of a device, but no GPU: leave the device out of it")
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
        at_home = waves * needed
        check_free(at_home, "what the fields of this model have at home")
        return Paging(allowed["device"], lambda: DevicePlace(at_home, devices()))
    return Paging(allowed["host"], lambda: DiskPlace(Path(directory or spill_directory()), needed))


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
    model: AcousticModel, budget: Budget | str | int, *, order: int = 8, dtype: Any = np.float32
) -> PagingPlan | None:
    """Tell how the fields of a model would be paged within a budget, or None where they fit; nothing is computed.

    Parameters
    ----------
    model, order, dtype
        As for `simulate`.
    budget
        Bytes of the memory in which waves are computed, and of that in which fields larger than it are at home.

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
    paging = paging_of(model, budget, order, dtype, None)
    if paging is None:
        return None
    try:
        return paging(model.grid, order // 2, np.dtype(dtype)).plan()
    finally:
        paging.close()


WAVES = 3
"""Times the bytes of a wave's fields that both waves of a reversal have at home, with the sums and what is copied."""


@contextmanager
def reversal_within(
    model: Any, order: int, dtype: Any, reversal: dict[str, Any]
) -> Iterator[tuple[Paging | None, dict[str, Any]]]:
    """Lend what pages the fields of a reversal, and what its engine is told, if a device is to compute a host's model.

    The engine then reverses states in host memory: its budget begins there, with what fields at home leave of it.
    """
    budget = reversal.get("budget")
    if not (is_paged(model) and tier_of(model) == "host" and isinstance(budget, Budget) and budget.device is not None):
        yield None, reversal
        return
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
    paging = paging_of(model, budget.with_tier("device", min(budget.device, needed - 1)), order, dtype, None, WAVES)
    assert paging is not None
    try:
        rest = Budget(host=budget.host - at_home, disk=budget.disk)
        yield paging, reversal | {"budget": rest, "rehearse": None}
    finally:
        paging.close()
