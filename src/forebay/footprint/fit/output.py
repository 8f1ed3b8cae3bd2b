"""The shape of an output, learned from the shapes of inputs: each of its lengths follows one rule, or none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

Lengths = tuple[int, ...]
Rule = Callable[[Lengths], int]


@dataclass(frozen=True)
class OutputShape:
    """One rule for each axis of the output."""

    rules: tuple[Rule, ...]
    names: tuple[str, ...]

    def __call__(self, lengths: Lengths) -> tuple[int, ...]:
        """Return the output's shape for inputs of these lengths."""
        return tuple(max(rule(lengths), 0) for rule in self.rules)

    def volume(self, lengths: Lengths) -> int:
        """Count the output's elements."""
        return prod(self(lengths))


def learn_output(
    inputs: Sequence[Lengths], outputs: Sequence[tuple[int, ...] | None], names: Sequence[str]
) -> OutputShape | None:
    """Find the simplest rules that hold in every sample; None where there are none.

    Examples
    --------
    >>> rule = learn_output([(8, 9), (12, 20), (5, 6)], [(8, 4), (12, 10), (5, 3)], ["n0", "n1"])
    >>> rule.names, rule((100, 101))
    (('n0', 'n1//2'), (100, 50))
    """
    shapes = [shape for shape in outputs if shape is not None]
    if not shapes or len(shapes) != len(outputs) or len({len(shape) for shape in shapes}) != 1:
        return None
    chosen: list[tuple[str, Rule]] = []
    for axis in range(len(shapes[0])):
        lengths = [shape[axis] for shape in shapes]
        # An axis that has the place of the input's is likelier to be that one than another that was as long.
        rules = _rules(inputs, lengths, names, axis)
        rule = next(
            (pair for pair in rules if all(pair[1](i) == n for i, n in zip(inputs, lengths, strict=True))), None
        )
        if rule is None:
            return None
        chosen.append(rule)
    return OutputShape(tuple(rule for _, rule in chosen), tuple(name for name, _ in chosen))


def _rules(
    inputs: Sequence[Lengths], outputs: Sequence[int], names: Sequence[str], place: int
) -> Iterator[tuple[str, Rule]]:
    """List rules, the simplest first; those with a shift take it from the first sample."""
    yield str(outputs[0]), _constant(outputs[0])
    axes = sorted(range(len(names)), key=lambda axis: (axis != place, axis))
    for axis in axes:
        yield names[axis], _shifted(axis, 0)
    for axis in axes:
        shift = outputs[0] - inputs[0][axis]
        yield f"{names[axis]}{shift:+d}", _shifted(axis, shift)
    for axis in axes:
        for step in (2, 3, 4, 5, 8, 10, 16):
            for up, mark in ((0, "{n}//{s}"), (step - 1, "ceil({n}/{s})")):
                shift = outputs[0] - (inputs[0][axis] + up) // step
                name = mark.format(n=names[axis], s=step) + (f"{shift:+d}" if shift else "")
                yield name, _divided(axis, step, up, shift)
    for axis in axes:
        for factor in (2, 3, 4, 8):
            shift = outputs[0] - factor * inputs[0][axis]
            yield f"{factor}*{names[axis]}" + (f"{shift:+d}" if shift else ""), _scaled(axis, factor, shift)
    for start in range(len(names)):
        for stop in range(start + 2, len(names) + 1):
            yield "*".join(names[start:stop]), _product(start, stop)
    for axis in axes:
        for other in axes:
            if axis < other:
                yield f"min({names[axis]},{names[other]})", _least(axis, other)


def _constant(value: int) -> Rule:
    return lambda lengths: value


def _shifted(axis: int, shift: int) -> Rule:
    return lambda lengths: lengths[axis] + shift


def _divided(axis: int, step: int, up: int, shift: int) -> Rule:
    return lambda lengths: (lengths[axis] + up) // step + shift


def _scaled(axis: int, factor: int, shift: int) -> Rule:
    return lambda lengths: factor * lengths[axis] + shift


def _product(start: int, stop: int) -> Rule:
    return lambda lengths: prod(lengths[start:stop])


def _least(axis: int, other: int) -> Rule:
    return lambda lengths: min(lengths[axis], lengths[other])
