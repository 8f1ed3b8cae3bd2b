"""Tables of what comes of a few questions today: who changes an answer says so by writing its table again."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cases = Iterable[tuple[str, Callable[[], Any]]]


def differences(told: Any, known: Any, where: str = "") -> Iterator[str]:
    """Yield where answers differ and what they are there; numbers may differ in their last digits."""
    if isinstance(told, dict) and isinstance(known, dict) and told.keys() == known.keys():
        for key in told:
            yield from differences(told[key], known[key], f"{where}.{key}")
    elif isinstance(told, list) and isinstance(known, list) and len(told) == len(known):
        for number, (one, other) in enumerate(zip(told, known, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif isinstance(told, float) and isinstance(known, int | float):
        if told != pytest.approx(known, rel=1e-9, abs=1e-9):
            yield f"{where}: {told} and not {known}"
    elif told != known:
        yield f"{where}: {told!r} and not {known!r}"


def differs(table: Path, name: str, make: Callable[[], Any]) -> list[str]:
    """List what comes of a question and is not what the table says, the first few differences."""
    found = differences(json.loads(json.dumps(make())), json.loads(table.read_text())[name])
    return [difference for _, difference in zip(range(5), found, strict=False)]


def write(table: Path, cases: Cases) -> None:
    """Write a table anew, a line for each question."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases)
    table.write_text(f"{{\n{lines}\n}}\n")
