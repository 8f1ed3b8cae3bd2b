"""What elastic records and images are made of on a GPU, and their making: the kernels of ``elastic_points.cu``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.wave.acoustic.gpu import WORD, GpuKernels
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.device import SOURCES, Launch
from forebay.wave.kernels.variant import Variant

POINTS = SOURCES / "elastic_points.cu"
THREADS = 128
"""Of a thread block."""


class ElasticImages(GpuKernels):
    """The part of the elastic kernels that looks at states without changing them."""

    def __init__(self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any, variant: Variant) -> None:
        super().__init__(grid, radius, dtype, device=device, variant=variant)
        self._shape = self.rows.shape(grid.fields(radius))
        # Above this plane the derivatives along depth are those of a table.
        self._closed = radius + max(radius, 2) if grid.free_surface else 0

    def see(self, propagator: Any, state: Any, images: Sequence[str]) -> dict[str, Any]:
        """Return what images need of a state: the divergence in the window, velocities from a point before it on."""
        seen = {}
        if "pp" in images:
            seen["div"] = self._empty(self._covered)
            fields = self._fields(dict(state))
            arguments = {"out": seen["div"], **{key: fields[key] for key in ("v_z", "v_y", "v_x")}}
            arguments |= {"back": propagator.table[2], "closed": self._closed, **self._slopes(propagator)}
            self._over(self._covered, "divergence", arguments)
        if "velocity" in images:
            for name in propagator.velocities:
                place = self._from_before(name[1:])
                seen[name] = self._empty(place)
                self._over(place, "crop", {"field": state[name], "out": seen[name]})
        return seen

    def meet(self, propagator: Any, sums: tuple[Any, Any], seen: Any, state: Any, factor: float) -> None:
        """Add the products of velocities that `see` returned with those of a state to an image, and their squares."""
        image, light = sums
        source, receiver = (self._fields(dict(fields), letter) for fields, letter in ((seen, "p"), (state, "q")))
        arguments = {"image": image, "light": light}
        arguments |= {key: wave[key] for wave in (source, receiver) for key in wave if key[0] in "pq"}
        self._over(self._covered, "meet", arguments | {"factor": factor / 2})

    def picture(
        self, adjoint: Any, step: int, sums: dict[str, Any], seen: Any, factor: float, watched: bool
    ) -> dict[str, Any]:
        """Step an adjoint back, and add to images what is to be seen there; see `images`.

        Where it is `watched`, return what images need of it.
        """
        propagator, steps_back = adjoint.loop.propagator, adjoint.step > step
        image, light = sums.get("pp", (None, None))
        state = adjoint.back_to(step, None if image is None else Imaging(image, light, seen["div"], factor))
        if image is not None and not steps_back:  # so it was not made on the way
            self.correlate(image, light, seen["div"], self.see(propagator, state, ("pp",))["div"], factor)
        if "velocity" in sums:
            self.meet(propagator, sums["velocity"], seen, state, factor)
        return self.see(propagator, state, tuple(sums)) if watched else {}

    def within(self, name: str, seen: Any, shape: tuple[int, ...], start: int) -> Any:
        """Return the model's part of what `see` returned; its rows begin at the point `start` of the fields'."""
        shift, points = start - self.window[-1].start, shape[-1]
        if name == "vx":  # it begins a word earlier, of which one point is needed
            shift, points = shift + WORD - 1, points + 1
        return seen[..., shift : shift + points]

    def _from_before(self, axis: str) -> dict[str, int]:
        """Describe the window, grown by a plane, a row or a word at its beginning."""
        name = {"z": "plane", "y": "row", "x": "word"}[axis]
        first, count = f"first_{name}", f"seen_{name}s"
        return self._covered | {first: self._covered[first] - 1, count: self._covered[count] + 1}

    def _empty(self, place: dict[str, int]) -> Any:
        shape = (place["seen_planes"], place["seen_rows"], WORD * place["seen_words"])
        return self.device.arrays.empty(shape if self._axes == 3 else shape[::2], self.dtype)

    def _over(self, place: dict[str, int], name: str, arguments: dict[str, Any]) -> None:
        """Launch a kernel with a thread for each word of a part of the fields."""
        grid = -(-place["seen_rows"] * place["seen_words"] // THREADS), min(place["seen_planes"], 65535)
        arguments = arguments | {"rows": self._rows, "words": self._words, **place}
        kernel = self.device.kernel(POINTS, name, {"AXES": self._axes, "RADIUS": self.radius})
        Launch(self.device, kernel, grid, (THREADS,), arguments)(self.device.stream())

    def _slopes(self, propagator: Any) -> dict[str, float]:
        spacing = propagator.model.grid.spacing
        return {"w_z": 1 / spacing[0], "w_y": 1 / spacing[1] if self._axes == 3 else 0.0, "w_x": 1 / spacing[-1]}

    def _fields(self, state: dict[str, Any], letter: str = "v") -> dict[str, Any]:
        """Name fields as the sources do; those that two dimensions have not are None."""
        v = {f"{letter}_{axis}": state.get(f"v{axis}") for axis in "zyx"}
        return v | {f"t_{pair}": state.get(f"t{pair}") for pair in ("zz", "yy", "xx", "zy", "zx", "yx")}
