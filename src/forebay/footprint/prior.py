"""What a function's source says of its memory before any run: an experiment, and it only orders the sampling.

The syntax tree is searched for calls, dtypes, slices and loops. They make some terms likelier than others and give a
first guess of the bytes per element; what is measured then decides alone.
"""

import ast
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.fit.peaks import Fit
from forebay.footprint.measure.sources import sources

CALLS = {
    "transform": r"(i?r?fft[2n]?|i?rfft[2n]?|hilbert|fftconvolve|next_fast_len|czt|dct|dst)$",
    "matrix": r"(svd|eigh?|eigvalsh?|qr|cholesky|lstsq|pinv|inv|solve)$",
    "pad": r"(pad|convolve|correlate|map_coordinates|zoom)$",
    "square": r"(pdist|cdist|outer|cov|corrcoef|gram)$",
}
MEANS = {
    "transform": r"fast",
    "matrix": r"min\(|^[a-z]\d+\*[a-z]\d+$",
    "pad": r"\+\d+\)",
    "square": r"\^2",
    "trim": r"-\d+\)|output",
    "loop": r"^[a-z]\d+\*[a-z]\d+$|^[a-z]\d+$",
}
"""which terms a finding speaks for, by their names"""
BOOST = 2.0
"""nats that a finding adds to a term it speaks for"""
WIDE = {"float64": 8, "complex64": 8, "complex128": 16, "int64": 8}


@dataclass(frozen=True)
class Reading:
    """What was found in a source."""

    findings: frozenset[str]
    temporaries: int
    """expressions that make whole arrays"""
    itemsize: int
    """of the widest dtype that is named, 4 where none is"""

    @property
    def bytes_per_element(self) -> float:
        """A first guess: three arrays are seldom exceeded, and one is the least, since the output is new."""
        return float(self.itemsize * min(max(self.temporaries, 1), 3))


def read_source(function: Callable[..., Any]) -> Reading:
    """Search the source of a function, and of those of its package that it calls.

    Examples
    --------
    >>> sorted(read_source(read_source).findings)
    ['loop']
    """
    findings: set[str] = set()
    temporaries, itemsize = 0, 4
    for text in sources(function):
        try:
            tree = ast.parse(textwrap.dedent(text))
        except SyntaxError:  # a name instead of a source, or a lambda cut out of its line
            continue
        for node in ast.walk(tree):
            name = _name(node)
            findings.update(kind for kind, pattern in CALLS.items() if name and re.search(pattern, name))
            if isinstance(node, ast.For):
                findings.add("loop")
            if (isinstance(node, ast.Slice) and _is_negative(node.upper)) or (
                isinstance(node, ast.Call) and name == "slice" and any(map(_is_negative, node.args))
            ):
                findings.add("trim")
            temporaries += isinstance(node, ast.BinOp)
            named = (
                node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else ""
            )
            itemsize = max(itemsize, WIDE.get(str(named), 4))
            if name and re.search(CALLS["transform"], name):
                itemsize = max(itemsize, 8)
    return Reading(frozenset(findings), temporaries, itemsize)


def weigher(function: Callable[..., Any]) -> Callable[[Fit], NDArray[np.float64]] | None:
    """Give what weighs plausible sets of terms by the source; None where the source says nothing."""
    patterns = [MEANS[kind] for kind in sorted(read_source(function).findings) if kind in MEANS]
    if not patterns:
        return None

    def weigh(fit: Fit) -> NDArray[np.float64]:
        spoken = np.array([BOOST * any(re.search(pattern, term.name) for pattern in patterns) for term in fit.terms])
        scores = fit.posterior.chances + spoken[fit.posterior.sets].sum(axis=1)
        likely = np.exp(scores - scores.max())
        return np.asarray(likely / likely.sum())

    return weigh


def _name(node: ast.AST) -> str:
    """Give the last part of the name that a node calls."""
    if not isinstance(node, ast.Call):
        return ""
    called = node.func
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _is_negative(end: ast.expr | None) -> bool:
    """Say whether the end of a slice counts from the back, so that the end of an axis is left out."""
    return isinstance(end, ast.UnaryOp) and isinstance(end.op, ast.USub)
