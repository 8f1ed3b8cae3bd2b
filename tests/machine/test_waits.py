"""Every wait in the sources has a name of its own, and a test that leaves it out."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import forebay
from tests.engine.test_ordering import all_waits
from tests.memory.pool.test_ordering import WAITS as POOL
from tests.wave.paged.test_ordering import WAITS as PAGED

SOURCES = Path(forebay.__file__).parent
ELSEWHERE = {
    "unpin: room free",  # tests/memory/pool/test_pool.py
    "link: copied",  # times the link, and orders nothing
}
SHARED = {"restore: its snapshot has arrived"}
"""Made at two places that do the same, for encodings and without: the tests leave out one of them at a time."""


def sites():
    """List where each wait is made, by its name."""
    found = defaultdict(list)
    for room in ("engine", "memory", "torch", "wave"):
        for path in sorted((SOURCES / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
                    continue
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                name = node.args[0].value
                if called in ("Wait", "wait", "_wait") and isinstance(name, str):
                    found[name].append(f"{path.name}:{node.lineno}")
    return dict(found)


def test_no_two_places_share_a_name():
    assert {name: places for name, places in sites().items() if len(places) > 1}.keys() <= SHARED


def test_each_is_left_out_by_a_test():
    pytest.importorskip("torch")
    from tests.torch.test_ordering import WAITS as TORCH

    assert len(sites()) > 15
    assert sites().keys() <= {*all_waits(), *POOL, *PAGED, *TORCH, *ELSEWHERE}
