"""The shape of an output, learned from the shapes of inputs: each of its lengths follows one rule, or none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor, prod

Lengths = Sequence[float]
"""of all axes, with the parameters after them"""
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
    inputs: Sequence[Lengths],
    outputs: Sequence[tuple[int, ...] | None],
    names: Sequence[str],
    parameters: Sequence[str] = (),
) -> OutputShape | None:
    """Find the simplest rules that hold in every sample; None where there are none.

    The inputs are lengths of axes with these names, with the values of parameters after them.

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
        rules = chain(_rules(inputs, lengths, names, axis), _rules_with(inputs, lengths, names, axis, parameters))
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
        shift = outputs[0] - int(inputs[0][axis])
        yield f"{names[axis]}{shift:+d}", _shifted(axis, shift)
    for axis in axes:
        for step in (2, 3, 4, 5, 8, 10, 16):
            for up, mark in ((0, "{n}//{s}"), (step - 1, "ceil({n}/{s})")):
                shift = outputs[0] - int(inputs[0][axis] + up) // step
                name = mark.format(n=names[axis], s=step) + (f"{shift:+d}" if shift else "")
                yield name, _divided(axis, step, up, shift)
    for axis in axes:
        for factor in (2, 3, 4, 8):
            shift = outputs[0] - factor * int(inputs[0][axis])
            yield f"{factor}*{names[axis]}" + (f"{shift:+d}" if shift else ""), _scaled(axis, factor, shift)
    for start in range(len(names)):
        for stop in range(start + 2, len(names) + 1):
            yield "*".join(names[start:stop]), _product(start, stop)
    for axis in axes:
        for other in axes:
            if axis < other:
                yield f"min({names[axis]},{names[other]})", _least(axis, other)


def _rules_with(
    inputs: Sequence[Lengths], outputs: Sequence[int], names: Sequence[str], place: int, parameters: Sequence[str]
) -> Iterator[tuple[str, Rule]]:
    """List rules of one parameter, alone and with one axis."""
    axes = sorted(range(len(names)), key=lambda axis: (axis != place, axis))
    for index, parameter in enumerate(parameters, len(names)):
        for factor in (1, 2, 3, 4):
            shift = outputs[0] - round(factor * inputs[0][index])
            yield f"{factor}*{parameter}{shift:+d}", _scaled(index, factor, shift)
        for axis in axes:
            for factor in (1, -1, 2, -2):
                shift = outputs[0] - round(inputs[0][axis] + factor * inputs[0][index])
                yield f"{names[axis]}{factor:+d}*{parameter}{shift:+d}", _added(axis, index, factor, shift)
            for name, of in COMBINED.items():
                shift = outputs[0] - of(inputs[0][axis], inputs[0][index])
                label = name.format(n=names[axis], p=parameter) + (f"{shift:+d}" if shift else "")
                yield label, _combined(axis, index, of, shift)

        for start in range(len(names)):
            for stop in range(start + 2, len(names) + 1):
                yield f"{'*'.join(names[start:stop])}*{parameter}", _product_times(start, stop, index)


COMBINED: dict[str, Callable[[float, float], int]] = {
    "{n}*{p}": lambda n, p: round(n * p),
    "floor({n}*{p})": lambda n, p: floor(n * p + 1e-9),
    "ceil({n}*{p})": lambda n, p: ceil(n * p - 1e-9),
    "floor({n}/{p})": lambda n, p: floor(n / p + 1e-9) if p else 0,
    "ceil({n}/{p})": lambda n, p: ceil(n / p - 1e-9) if p else 0,
}
"""how a length may follow from one of the input and a parameter"""


def _added(axis: int, index: int, factor: int, shift: int) -> Rule:
    return lambda lengths: round(lengths[axis] + factor * lengths[index]) + shift


def _product_times(start: int, stop: int, index: int) -> Rule:
    return lambda lengths: round(prod(lengths[start:stop]) * lengths[index])


def _combined(axis: int, index: int, of: Callable[[float, float], int], shift: int) -> Rule:
    return lambda lengths: of(lengths[axis], lengths[index]) + shift


def _constant(value: int) -> Rule:
    return lambda lengths: value


def _shifted(axis: int, shift: int) -> Rule:
    return lambda lengths: int(lengths[axis]) + shift


def _divided(axis: int, step: int, up: int, shift: int) -> Rule:
    return lambda lengths: int(lengths[axis] + up) // step + shift


def _scaled(axis: int, factor: int, shift: int) -> Rule:
    return lambda lengths: round(factor * lengths[axis]) + shift


def _product(start: int, stop: int) -> Rule:
    return lambda lengths: int(prod(lengths[start:stop]))


def _least(axis: int, other: int) -> Rule:
    return lambda lengths: int(min(lengths[axis], lengths[other]))
