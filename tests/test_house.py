"""The rules of the house that can be counted: floors, circles, sizes, names and words.

`make lint` runs this file as a script, which prints every offender. A folder as argument is looked at instead of ours.
"""

import ast
import gc
import re
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(sys.argv[1] if __name__ == "__main__" and sys.argv[1:] else Path(__file__).parents[1] / "src" / "forebay")

FLOORS = [
    {"__init__", "__main__"},
    {"cli"},
    {"wave"},
    {"torch", "jax", "devito", "dask", "cubed", "dasf"},
    {"report"},
    {"engine", "memory"},
    {"machine"},
    {"planner", "tier", "footprint"},
    {"codec", "schedule"},
    {"cuda", "metrics"},
    {"locks"},
    {"units", "compiled", "processors", "filesystems", "checksums", "tasks"},
    {"drawing"},
    {"errors", "forking", "version", "files"},
]
"""Rooms from the top floor down: each may import itself and what is below it."""

LONG: set[str] = set()
"""Tables and kernels, which may have more lines than others."""

VALUES = {"Desk", "Metrics", "Options", "PhysicsTable", "Plan", "Sample", "ToldShot"}
"""Tables of values and nothing else, whose fields users, files or loops know by their names."""

CROWDED = {"Child", "GpuKernels"}
"""Classes that still have too many attributes: none is added."""

PROMISE = r"pip install \W*forebay|\bforebay\["
"""What no string of ours says, in parts of an f-string neither: extras are named by `errors.needs`."""

MOST_FILES, MOST_LINES, MOST_SHARED_NAMES, MOST_ATTRIBUTES = 16, 350, 5, 12
MOST_LINES_OF_BENCHMARKS = 4500

FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def module_of(file):
    """Return a file's module inside of the package: `codec.zfp`, and `codec` for `codec/__init__.py`."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def nodes():
    """Return all nodes of each file, parsed when the first rule asks for them: who collects tests need not wait."""
    parsed = {file: list(ast.walk(ast.parse(text))) for file, text in FILES.items()}
    gc.freeze()  # half a million of them, which collections of garbage in later tests would look through
    return parsed


def imports_of(file):
    """Yield the modules of ours that a file imports anywhere: at its top, in functions, for type checks alone."""
    for node in nodes()[file]:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            package, _, inside = target.partition(".")
            if package == "forebay":
                yield inside if inside in MODULES else inside.rpartition(".")[0] or "__init__"


MODULES = {module_of(file) for file in FILES}


@cache
def imports():
    """Return which modules of ours each of them imports."""
    return {module_of(file): set(imports_of(file)) for file in FILES}


def floor_of(module):
    rooms = [number for number, rooms in enumerate(FLOORS) if module.split(".")[0] in rooms]
    return rooms[0] if rooms else -1


def floors():
    """Find imports that do not point down, and rooms without a floor."""
    yield from sorted({f"{module.split('.')[0]} has no floor" for module in imports() if floor_of(module) < 0})
    for module, used in imports().items():
        for other in sorted(used):
            if module.split(".")[0] != other.split(".")[0] and floor_of(module) >= floor_of(other):
                yield f"{module} imports {other}"


def circles():
    """Find modules that import themselves by way of others."""
    reached = {}
    for module in imports():
        reached[module], ahead = set(), [module]
        while ahead:
            new = imports()[ahead.pop()] - reached[module]
            reached[module] |= new
            ahead += new
    around = [frozenset(m for m in reached[module] if module in reached[m]) for module in reached]
    return sorted(" <-> ".join(sorted(circle)) for circle in set(around) if circle)


def folders():
    """Find folders with too many source files."""
    sources = [path for path in SOURCE.rglob("*") if path.suffix in {".py", ".cu", ".cuh"}]
    counts = Counter(path.parent.relative_to(SOURCE).as_posix() for path in sources)
    return [f"{folder}: {count} files" for folder, count in counts.items() if count > MOST_FILES]


def lengths():
    """Find files that are not read in one sitting."""
    lines = {file: text.count("\n") for file, text in FILES.items() if file not in LONG}
    return [f"{file}: {count} lines" for file, count in lines.items() if count > MOST_LINES]


def benchmarks():
    """Find whether the benchmarks beside the source have grown: what is new there takes the place of something."""
    lines = sum(path.read_text().count("\n") for path in (SOURCE.parents[1] / "bench").rglob("*.py"))
    return [f"bench: {lines} lines"] if lines > MOST_LINES_OF_BENCHMARKS else []


def class_names():
    """Find names of classes that are used twice, where there are too many of them."""
    homes = defaultdict(list)
    for file, own in nodes().items():
        for node in own:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(file)
    shared = [f"class {name}: {', '.join(files)}" for name, files in sorted(homes.items()) if len(files) > 1]
    return shared if len(shared) > MOST_SHARED_NAMES else []


def attributes_of(definition):
    """Return the names of what a class gives its objects: annotated in its body, or assigned to `self` in a method."""
    fields = {node.target.id for node in definition.body if isinstance(node, ast.AnnAssign)}
    nodes = [node for node in ast.walk(definition) if isinstance(node, ast.Attribute)]
    stored = [node for node in nodes if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)]
    return fields | {node.attr for node in stored if node.value.id == "self"}


def attributes():
    """Find classes that hold too much to be understood at once, those of their bases not counted."""
    for file, own in nodes().items():
        for node in own:
            if isinstance(node, ast.ClassDef) and node.name not in VALUES | CROWDED:
                count = len(attributes_of(node))
                if count > MOST_ATTRIBUTES:
                    yield f"{file}: {node.name} has {count} attributes"


def docstrings():
    """Find docstrings that begin with "Give" instead of the verb of the effect."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file, own in nodes().items():
        for node in own:
            if isinstance(node, documented) and re.match(r"Gives?\b", ast.get_docstring(node) or ""):
                yield f"{file}:{getattr(node, 'lineno', 1)}"


def alignments():
    """Find constants for the alignment of memory, where there is more than one."""
    found = lines_with(r"^_?ALIGNMENT\b.*=")
    return found if len(found) > 1 else []


def relative_imports():
    """Find relative imports, which the other rules do not follow."""
    for file, own in nodes().items():
        for node in own:
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{file}:{node.lineno}"


def promises():
    """Find messages that tell people to fetch Forebay from PyPI, where it is not."""
    for file, own in nodes().items():
        for node in own:
            if isinstance(node, ast.Constant) and re.search(PROMISE, str(node.value)):
                yield f"{file}:{node.lineno}: {node.value!r}"


def lines_with(pattern):
    lines = [(file, number, line) for file, text in FILES.items() for number, line in enumerate(text.splitlines(), 1)]
    return [f"{file}:{number}: {line.strip()}" for file, number, line in lines if re.search(pattern, line)]


RULES = [relative_imports, floors, circles, folders, lengths, benchmarks, class_names, attributes]
RULES += [docstrings, alignments, promises]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_offender(rule):
    assert list(rule()) == []


if __name__ == "__main__":
    offenders = {rule.__name__: list(rule()) for rule in RULES}
    for name, lines in offenders.items():
        print(*[f"{name}: {line}" for line in lines], sep="\n", end="\n" if lines else "")
    sys.exit(any(offenders.values()))
