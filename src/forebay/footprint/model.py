"""The model of a function: its footprint, with the chunks, the file and the words that come of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

from forebay.drawing import Chart
from forebay.drawing.tables import preformatted
from forebay.footprint.chart import footprint_chart
from forebay.footprint.chunks.chunked_inputs import Features, for_chunks
from forebay.footprint.chunks.plan import choose_chunks
from forebay.footprint.errors import FootprintError
from forebay.footprint.explain import explain
from forebay.footprint.fit.footprint import Footprint
from forebay.footprint.measure.inputs import Shape
from forebay.footprint.measure.sample import Sample
from forebay.footprint.model_file import write
from forebay.units import Budget


@dataclass(frozen=True)
class Model(Footprint):
    """The footprint of a function, as `learn` and `load` return it."""

    def chunks(
        self,
        shape: Shape,
        budget: str | float | Budget,
        *,
        threads: int = 1,
        halo: int | Sequence[int] | None = None,
        stored_chunks: Sequence[int] | None = None,
        features: Features | None = None,
        **options: Any,
    ) -> tuple[int, ...]:
        """Choose chunks of an array so that (input with halo + bound) x threads stays within a budget.

        Parameters
        ----------
        shape
            of the whole array; where the function takes several, they are cut alike
        budget
            the bytes allowed where the function's arrays are, like ``"4GB"``
        threads
            chunks that are worked on at the same time
        halo
            elements that each chunk needs of its neighbours, for each axis
        stored_chunks
            the chunks that the array is stored in, to be aligned with
        features
            the most that any chunk has, where the model was learned with `features`; or a function of a chunk's shape
        **options
            the parameters that the model was learned with, and what else `plan_chunks` takes: workers, whole, padded,
            waiting, overhead. Axes that it was learned for certain lengths of are not cut
        """
        count: object = threads
        if not isinstance(count, Integral) or count < 1:
            raise FootprintError(f"threads={threads!r}: give the number of chunks that are worked on at the same time")
        given = {name: options.pop(name) for name, _ in self.layout.parameters if name in options}
        legal = tuple(axis for axis, values in enumerate(self.layout.legal) if values is not None)
        if legal:
            whole = options.get("whole", ())
            options["whole"] = (*((whole,) if isinstance(whole, Integral) else whole), *legal)
        model = replace(self.called_with(**given), views=True)  # parts of an array have gaps between their rows
        return choose_chunks(
            for_chunks(model, features),
            shape,
            budget,
            threads=threads,
            halo=halo,
            stored_chunks=stored_chunks,
            **options,
        )

    def called_with(self, **parameters: float) -> Self:
        """Return the model of runs with these parameters, as graphs and doors ask for it: by its shape alone."""
        return replace(self, given=self.given | parameters)

    def observe(self, *samples: Sample) -> Self:
        """Learn from further runs: return the model with these samples added."""
        return replace(self, samples=(*self.samples, *samples))

    def save(self, path: str | Path) -> None:
        """Write the model as JSON; `forebay.footprint.load` reads it."""
        write(self, Path(path))

    def plot(self, shape: Sequence[int] | None = None) -> Chart:
        """Draw the samples, and estimate and bound as all axes grow together, up to a shape."""
        return footprint_chart(self, None if shape is None else tuple(shape))

    def _repr_html_(self) -> str:
        return preformatted(self.explain()) + self.plot().markup

    def explain(self) -> str:
        """Write out the terms, the samples and what is uncertain."""
        return explain(self)
