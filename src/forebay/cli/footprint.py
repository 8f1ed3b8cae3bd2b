"""`forebay footprint`: learn what a function needs, say what it needs for a shape, and choose chunks that fit."""

import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

import typer

from forebay.cli.outputs import PICTURES, check_output
from forebay.errors import ForebayError
from forebay.report.console import plain
from forebay.units import to_bytes, to_text

if TYPE_CHECKING:
    from forebay.footprint import Model


def footprint(
    function: Annotated[str, typer.Argument(help="package.module:function, or a command like './op {0} {1} {2}'.")],
    shape: Annotated[str, typer.Option(help="Shape of the whole array, like 651,951,462.")],
    budget: Annotated[str | None, typer.Option(help="Bytes allowed, like 4GB, to choose chunks for.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the input.")] = "float32",
    threads: Annotated[int, typer.Option(help="Chunks worked on at the same time.")] = 1,
    halo: Annotated[str | None, typer.Option(help="Elements needed of neighbours, like 8,8,8. Else found.")] = None,
    whole: Annotated[str | None, typer.Option(help="Axes that must not be cut, like 0,2. Else found.")] = None,
    stored: Annotated[str | None, typer.Option(help="Chunks that the array is stored in, like 64,64,64.")] = None,
    library: Annotated[str, typer.Option(help="Whose arrays it takes: numpy, cupy, torch or jax.")] = "numpy",
    samples: Annotated[int, typer.Option(help="Runs allowed.")] = 10,
    seconds: Annotated[float, typer.Option(help="Seconds allowed.")] = 60.0,
    model: Annotated[Path | None, typer.Option(help="Load the model from here if it is there; else write it.")] = None,
    picture: Annotated[Path, typer.Option(help="Draw measured against predicted here.")] = Path("footprint.png"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print estimate, bound and chunks as JSON, and draw nothing.")
    ] = False,
) -> None:
    """Learn the memory of a function from a few tiny runs; estimate, bound and chunks for a shape."""
    from forebay.footprint import CutError, FootprintError, FootprintWarning, find_reach, learn, load
    from forebay.footprint.picture import draw

    warnings.simplefilter("ignore", FootprintWarning)  # the explanation tells the same notes
    lengths = _numbers(shape, "--shape")
    allowed = None if budget is None else to_bytes(budget)
    near: dict[str, Any] = {"halo": _numbers(halo, "--halo"), "stored_chunks": _numbers(stored, "--stored")}
    near["whole"] = _numbers(whole, "--whole") or ()
    check_output("--picture", picture, PICTURES)
    check_output("--model", model)
    how: dict[str, Any] = {"ndim": len(lengths), "dtype": dtype, "samples": samples, "seconds": seconds}
    how |= {"shape": lengths, "library": library}
    what: dict[str, Any] = {"command": function} if "{0}" in function else {"function": _find(function)}
    if model is not None and model.exists():
        learned = load(model, **what, **how)
    else:
        learned = learn(**what, **how)
        if model is not None:
            learned.save(model)
    if as_json:
        typer.echo(json.dumps(_told(learned, lengths, allowed, threads, near, what.get("function"), dtype), indent=2))
        return
    typer.echo(plain(learned.explain()))
    typer.echo(f"\n{lengths}: {learned.predict(lengths)}")
    if allowed is not None and (near["halo"] or near["whole"] or library != "numpy" or "function" not in what):
        typer.echo(_chunks(learned, lengths, allowed, threads, near))
    elif allowed is not None:
        try:
            reach = find_reach(what["function"], len(lengths), dtype)
            near |= {"halo": reach.halo, "whole": reach.whole}
            typer.echo(f"halo {reach.halo}, whole axes {reach.whole or 'none'}: blocks of small arrays gave the whole")
            typer.echo(_chunks(learned, lengths, allowed, threads, near))
        except CutError as error:
            typer.echo(plain(f"no chunks: {error}"))
        except FootprintError as error:
            typer.echo(_chunks(learned, lengths, allowed, threads, near))
            typer.echo(plain(f"whether blocks give what the whole gives is not known: {error}"))
    try:
        draw(learned, picture, lengths)
    except FootprintError as error:  # all else was asked for too, and is said
        typer.echo(plain(f"no picture: {error}"))
    else:
        typer.echo(plain(f"measured against predicted: {picture}"))


def _told(
    learned: "Model",
    lengths: tuple[int, ...],
    allowed: int | None,
    threads: int,
    near: dict[str, Any],
    function: Callable[..., Any] | None,
    dtype: str,
) -> dict[str, Any]:
    """Return what was learned as plain values; chunks are null where none can be cut, and `why` tells the reason."""
    from forebay.footprint import CutError, FootprintError, find_reach

    estimate = learned.predict(lengths)
    told: dict[str, Any] = {"name": learned.name, "shape": lengths, "bytes": estimate.bytes, "upper": estimate.upper}
    told |= {"risk": estimate.risk, "place": estimate.place, "seconds": estimate.seconds}
    if allowed is None:
        return told
    try:
        if function is not None and not (near["halo"] or near["whole"]):
            reach = find_reach(function, len(lengths), dtype)
            near = near | {"halo": reach.halo, "whole": reach.whole}
    except CutError as error:
        return told | {"chunks": None, "why": str(error)}
    except FootprintError as error:
        told["why"] = str(error)
    return told | {"chunks": learned.chunks(lengths, allowed, threads=threads, **near), "halo": near["halo"]}


def _chunks(learned: "Model", lengths: tuple[int, ...], allowed: int, threads: int, near: dict[str, Any]) -> str:
    chunks = learned.chunks(lengths, allowed, threads=threads, **near)
    return f"chunks within {to_text(allowed)}: {chunks}, each {learned.predict(chunks)}"


@overload
def _numbers(text: str, option: str) -> tuple[int, ...]: ...
@overload
def _numbers(text: None, option: str) -> None: ...
def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ForebayError(f"cannot read {option} {text!r}: write lengths between commas, like 651,951,462") from None


def _find(name: str) -> Callable[..., Any]:
    """Find a function by module and name, in the current folder too."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ForebayError(f"cannot read {name!r}: write package.module:function, or a command with {{0}} in it")
    sys.path.insert(0, "")
    try:
        imported = import_module(module)
    except Exception as error:  # a module may raise anything
        raise ForebayError(f"cannot import {module}: {error} ({type(error).__name__})") from error
    if not hasattr(imported, attribute):
        raise ForebayError(f"{module} has no {attribute}")
    function = getattr(imported, attribute)
    if not callable(function):
        raise ForebayError(f"{name} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]
