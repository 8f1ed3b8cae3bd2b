"""Functions compiled by Numba and kept on disk, safely where several processes compile at once.

Numba numbers the files of a function's variants, and writes the list of them before the files, without a lock. Of two
processes that compile at once, the list of one could then name a file that holds the code of the other's variant. And
where sources change, numbers begin anew over files that are still there. So here

- files are named after the sources, the options, and Numba's version and level of optimisation, and none is ever
  numbered twice;
- one process at a time writes, under a lock of the operating system that ends with the process;
- one process compiles a variant, and others that want the same wait for it and find it.

A process that is killed between the list and the file leaves a name without a file: that variant is compiled again. So
is one whose list or file is damaged, of which a checksum tells.
"""

import os
import pickle
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from inspect import getclosurevars
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from forebay.errors import ForebayError

F = TypeVar("F", bound=Callable[..., Any])

LOCK = "forebay.lock"
"""The file in a folder of kept code that is locked while some is written."""
CLAIMS = "forebay.claims"
"""The file beside it of which a byte is locked for each variant that is being compiled."""
CHECKSUM = 16
"""Bytes of the checksum that a file of kept code begins with."""


def kept(function: F, **options: Any) -> F:
    """Compile a function when it is first called, and keep the result where Numba finds a place that it may write to.

    It is compiled again when any Python file of its folder changes: a function may call others of its folder alone.
    Without Numba it raises ImportError, of which the caller says for what Numba is needed.
    """
    import numba

    options["no_cfunc_wrapper"] = True  # a way in for C, which nobody takes: a tenth of the time to compile
    _check_calls(function)
    with suppress(RuntimeError, OSError):  # there is no such place, or no source
        compiled = numba.njit(cache=True, **options)(_named(function, options))
        folder = Path(compiled.stats.cache_path)
        if _lockable(folder):
            _check_files(compiled)
            _writers().folders[compiled] = folder
            return compiled  # type: ignore[no-any-return]
    return numba.njit(**options)(function)  # type: ignore[no-any-return]


@cache
def apart() -> Any:
    """Return a compiler for functions of which no array that is written to overlaps another: Numba's `pipeline_class`.

    Loops then need not find out first whether arrays lie apart, and may touch more of them. What is private here was
    seen in Numba 0.59 to 0.68.
    """
    from numba.core.compiler import Compiler

    class Apart(Compiler):  # type: ignore[misc]
        """Tells LLVM what it tells it of the bodies of parallel loops."""

        def __init__(
            self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, own: Any
        ) -> None:
            flags.noalias = True
            super().__init__(typing, target, library, args, result, flags, own)

    return Apart


def _check_files(compiled: Any) -> None:
    """Have the files of a function carry checksums: what is damaged or cut short is compiled again, not run.

    What is private here was seen in Numba 0.59 to 0.68.
    """
    files = compiled._cache._cache_file
    checked = object.__new__(_checked_files())
    checked.__dict__.update(files.__dict__)
    compiled._cache._cache_file = checked


@cache
def _checked_files() -> Any:
    from numba.core.caching import IndexDataCacheFile

    class CheckedFiles(IndexDataCacheFile):  # type: ignore[misc]
        """The list of a function's variants, and the code of each, all behind their checksums."""

        def load(self, key: Any) -> Any:
            code = super().load(key)
            if code is None and _claim(Path(self._cache_path), f"{self._index_name} {key}"):
                code = super().load(key)
            return code

        def _load_index(self) -> Any:
            with suppress(OSError):
                version, stamp, variants = self._read(self._index_path)
                return variants if (version, stamp) == (self._version, self._source_stamp) else {}
            return {}

        def _save_index(self, overloads: Any) -> None:
            self._write(self._index_path, (self._version, self._source_stamp, overloads))

        def _load_data(self, name: str) -> Any:
            return self._read(self._data_path(name))

        def _save_data(self, name: str, data: Any) -> None:
            self._write(self._data_path(name), data)

        def _read(self, path: str) -> Any:
            content = Path(path).read_bytes()
            if content[:CHECKSUM] != blake2b(content[CHECKSUM:], digest_size=CHECKSUM).digest():
                raise OSError(f"{path} is damaged")  # for Numba, as good as not there
            return pickle.loads(content[CHECKSUM:])

        def _write(self, path: str, what: Any) -> None:
            content = self._dump(what)
            with self._open_for_write(path) as file:
                file.write(blake2b(content, digest_size=CHECKSUM).digest() + content)

    return CheckedFiles


def _check_calls(function: Any) -> None:
    """Refuse a function that calls compiled ones of another folder: it would go on with their earlier sources."""
    variables = getclosurevars(function)
    folder = Path(function.__code__.co_filename).parent
    for name, value in {**variables.globals, **variables.nonlocals}.items():
        called = getattr(value, "py_func", None)
        if called is not None and Path(called.__code__.co_filename).parent != folder:
            raise ForebayError(f"{function.__qualname__} calls {name} of another folder: put both into one")


def _named(function: Any, options: dict[str, Any]) -> Any:
    """Copy a function under a name that no other sources, options, version or settings of Numba give it."""
    import numba

    file = Path(function.__code__.co_filename)
    asked = sorted((name, sorted(value) if isinstance(value, set) else value) for name, value in options.items())
    how = f"{numba.__version__} {numba.config.OPT} {asked}"
    # Older versions of Numba begin their numbers anew when the file's date changes.
    what = f"{file.stat().st_mtime_ns} {_sources(file.parent)}"
    code, defaults, closure = function.__code__, function.__defaults__, function.__closure__
    named = FunctionType(code, function.__globals__, function.__name__, defaults, closure)
    named.__kwdefaults__, named.__doc__ = function.__kwdefaults__, function.__doc__
    named.__qualname__ = f"{function.__qualname__}-{_digest(how, 4)}-{_digest(what, 8)}"
    return named


@cache
def _sources(folder: Path) -> str:
    return _digest(repr([(path.name, path.read_bytes()) for path in sorted(folder.glob("*.py"))]), 16)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _lock(folder: Path, wait: bool = True) -> int:
    """Wait until no other process writes into a folder, and return a descriptor for `_unlock`."""
    import fcntl

    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _unlock(descriptor: int) -> None:
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing would not do where a child has the descriptor too
    os.close(descriptor)


@cache
def _lockable(folder: Path) -> bool:
    """Tell whether files of a folder can be locked here; nothing is kept on Windows, or on disks without locks."""
    try:
        _unlock(_lock(folder, wait=False))
    except BlockingIOError:  # another process has it
        return True
    except (ImportError, OSError):
        return False
    return True


class _Held(threading.local):
    """What a thread is to unlock, each lock with how deep it was in Numba's own, and how deep it is."""

    depth = 0

    def __init__(self) -> None:
        self.locks: list[tuple[int, Callable[[], None]]] = []


HELD = _Held()


def _claim(folder: Path, variant: str) -> bool:
    """Wait until no other process compiles a variant, and tell whether others now wait for this one.

    Until this thread leaves Numba's lock, that is. A function is compiled inside of those that call it, so processes
    never wait for each other in a circle.
    """
    with suppress(ImportError, OSError):  # the folder has vanished, or takes no such locks
        import fcntl

        claims, byte = _claims(folder), int.from_bytes(blake2b(variant.encode(), digest_size=7).digest(), "big")
        fcntl.lockf(claims, fcntl.LOCK_EX, 1, byte)
        HELD.locks.append((HELD.depth, partial(fcntl.lockf, claims, fcntl.LOCK_UN, 1, byte)))
        return True
    return False


@cache
def _claims(folder: Path) -> int:
    """Open the file of claims, once for the process: to close it would release all that it has claimed."""
    return os.open(folder / CLAIMS, os.O_RDWR | os.O_CREAT, 0o666)


@cache
def _writers() -> Any:
    """Make what listens to Numba, as its event API has it: a function is kept after the event of its compilation."""
    from numba.core import event

    class Compiled(event.Listener):  # type: ignore[misc]
        """Takes the lock when one of our functions has been compiled, right before Numba writes it."""

        def __init__(self) -> None:
            self.folders: dict[Any, Path] = {}

        def on_start(self, _event: Any) -> None:
            pass

        def on_end(self, compilation: Any) -> None:
            dispatcher = compilation.data["dispatcher"]
            folder = self.folders.get(dispatcher)
            if folder is None:
                return
            with suppress(OSError):  # where a folder can no longer be written to, Numba says so itself
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                HELD.locks.append((HELD.depth, partial(_unlock, _lock(folder))))
                _remove_outdated(folder, dispatcher.py_func)

    class Locked(event.Listener):  # type: ignore[misc]
        """Releases locks when Numba, which has compiled and written, leaves its own."""

        def on_start(self, _event: Any) -> None:
            HELD.depth += 1

        def on_end(self, _event: Any) -> None:
            HELD.depth -= 1
            while HELD.locks and HELD.locks[-1][0] > HELD.depth:
                HELD.locks.pop()[1]()

    compiled = Compiled()
    event.register("numba:compile", compiled)
    event.register("numba:compiler_lock", Locked())
    return compiled


def _remove_outdated(folder: Path, function: Any) -> None:
    """Remove what was kept of a function's earlier sources, code before lists: a list without code does no harm."""
    module = Path(function.__code__.co_filename).stem
    name = f"{module}.{function.__qualname__}".replace("<", "").replace(">", "")
    start, _, current = name.rpartition("-")
    outdated = re.compile(re.escape(start) + r"-(?!" + current + r")[0-9a-f]{16}-.*\.nb[ci]")
    for path in sorted(path for path in folder.iterdir() if outdated.fullmatch(path.name)):
        with suppress(OSError):
            path.unlink()
