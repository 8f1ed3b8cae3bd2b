"""Small changes of sources, each of which some test should notice.

Left alone is what no result depends on: texts, what errors say, annotations, decorators, blocks for type checks,
assertions, `strict=` of `zip`, which is one, and requests for memory ahead of time.
What Numba compiles is changed like all else, and compiled again.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITES = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPPOSITES |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
OPPOSITES |= {ast.And: ast.Or, ast.Or: ast.And}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult}
ARITHMETIC |= {ast.Mod: ast.Add, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift}
ARITHMETIC |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
LEFT_OUT = {"annotation", "returns", "decorator_list", "type_params", "format_spec"}
"""Fields of nodes that are not looked into."""


@dataclass(frozen=True)
class Mutant:
    """One change of a file."""

    file: str
    function: str
    """The outermost one that it is in, if any."""
    kind: str
    line: int
    place: int | None
    """The line before which Python always passes; None where importing runs it, or Numba compiles it."""
    compiled: bool
    source: str
    """The whole file, changed."""
    before: str
    after: str

    @property
    def key(self) -> str:
        """What it is known by when lines have moved."""
        return f"{self.file}: {self.before} => {self.after}"


def mutants(root: Path, file: str) -> Iterator[Mutant]:
    """Yield every change of a file."""
    text = (root / file).read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, statement, function in _nodes(ast.parse(text)):
        compiled = function is not None and is_compiled(function)
        place = (
            None if function is None or compiled else _place(statement, function, text[starts[statement.lineno - 1] :])
        )
        for kind, old, changed in _changes(node):
            start, stop = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            new = ast.unparse(changed)
            if isinstance(changed, ast.BinOp | ast.BoolOp | ast.Compare):
                new = f"({new})"
            first, last = starts[old.lineno - 1], starts[old.end_lineno]
            before = " ".join(text[first:last].decode().split())
            after = " ".join((text[first:start].decode() + new + text[stop:last].decode()).split())
            source = text[:start].decode() + new + text[stop:].decode()
            yield Mutant(
                file,
                function.name if function is not None else "",
                kind,
                old.lineno,
                place,
                compiled,
                source,
                before,
                after,
            )


def entries(root: Path, file: str) -> list[int]:
    """List the lines before which Python passes when functions of a file are called, but compiled and empty ones."""
    nodes = ast.walk(ast.parse((root / file).read_bytes()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and not _is_empty(node)]
    compiled = {each for function in functions if is_compiled(function) for each in ast.walk(function)}
    return [_first(each) for each in functions if each not in compiled and _first(each) > each.lineno]


def is_compiled(function: ast.FunctionDef) -> bool:
    """Tell whether Numba compiles a function, or one that is inside of it."""
    inside = (each for each in ast.walk(function) if isinstance(each, ast.FunctionDef))
    decorators = "".join(ast.dump(each) for one in inside for each in one.decorator_list)
    return "jit" in decorators or "overload" in decorators


def _is_empty(function: ast.FunctionDef) -> bool:
    """Tell whether a function has a docstring and nothing else."""
    return len(function.body) == 1 and ast.get_docstring(function) is not None


def _first(function: ast.FunctionDef) -> int:
    """Return the first line of what a function does."""
    return _start(function.body[-1 if len(function.body) == 1 else ast.get_docstring(function) is not None])


def _place(statement: ast.stmt, function: ast.FunctionDef, text: bytes) -> int:
    return _first(function) if text.lstrip().startswith(b"elif") else _start(statement)


def _start(statement: ast.stmt) -> int:
    return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.stmt, ast.FunctionDef | None]]:
    """Yield what may be changed, each with its statement, and the outermost function whose body that is part of."""
    ahead: list[tuple[ast.AST, ast.AST, ast.FunctionDef | None]] = [(tree, tree, None)]
    while ahead:
        node, statement, function = ahead.pop()
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert) or _asks_for_nothing(node):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.stmt):
            statement = node
        if hasattr(node, "lineno"):
            yield node, statement, function
        if isinstance(node, ast.Raise):
            continue
        for name, value in ast.iter_fields(node):
            inside = node if function is None and isinstance(node, ast.FunctionDef) and name == "body" else function
            children = value if isinstance(value, list) else [value]
            if name not in LEFT_OUT:
                ahead += [(child, statement, inside) for child in children if isinstance(child, ast.AST)]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield what a node, or the condition of one, may become: the kind of the change, the old and the new."""
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield "not, sign", node.test, ast.UnaryOp(ast.Not(), node.test)
    for kind, changed in _alternatives(node):
        yield kind, node, changed


def _alternatives(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=[operator]):
            for kind, table in (("bound", BOUNDS), ("comparison", OPPOSITES)):
                if type(operator) in table:
                    yield kind, _with(node, ops=[table[type(operator)]()])
        case ast.BoolOp(op=operator):
            yield "and, or", _with(node, op=OPPOSITES[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "not, sign", operand
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in ARITHMETIC and not _texts(node):
            yield "arithmetic", _with(node, op=ARITHMETIC[type(operator)]())
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield "call", _with(node, func=ast.Name(CALLS[name]))
        case ast.IfExp(body=body, orelse=orelse):
            yield "branch", _with(node, body=orelse, orelse=body)
        case ast.Continue():
            yield "loop", ast.Break()
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Expr(value=value) if _asks_for_nothing(value):
            return
        case ast.Raise() | ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "removed", ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _asks_for_nothing(node: ast.AST) -> bool:
    """Tell whether a node is `strict=`, or a call that has memory fetched before it is needed."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("prefetch")


def _texts(node: ast.AST) -> bool:
    """Tell whether an operation is one on texts."""
    return any(isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", 0), str) for each in ast.walk(node))
