"""`forebay footprint`: learn what a function needs, say what it needs for a shape, and choose chunks that fit."""

import json
import sys
import warnings
from ast import literal_eval
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import signature
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
    keyword: Annotated[list[str] | None, typer.Option(help="What the function is called with, like sigma=4.")] = None,
    parameter: Annotated[
        list[str] | None, typer.Option(help="Learn it for all of these, like sigma=1,8 (a list where there are three).")
    ] = None,
    axis: Annotated[
        list[str] | None, typer.Option(help="Lengths that an axis may have, like 2=3, 0=16,32,64 or 0=16:4096:16.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that work at the same time, each with the budget.")] = 1,
    library: Annotated[str, typer.Option(help="Whose arrays it takes: numpy, cupy, torch or jax.")] = "numpy",
    samples: Annotated[int | None, typer.Option(help="Runs allowed; 10 without parameters.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds allowed.")] = 60.0,
    model: Annotated[Path | None, typer.Option(help="Load the model from here if it is there; else write it.")] = None,
    picture: Annotated[Path, typer.Option(help="Draw measured against predicted here.")] = Path("footprint.png"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print estimate, bound and chunks as JSON, and draw nothing.")
    ] = False,
) -> None:
    """Learn the memory of a function from a few tiny runs; estimate, bound and chunks for a shape."""
    from forebay.footprint import FootprintError, FootprintWarning, learn, load
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
    keywords = _assignments(keyword, "--keyword sigma=4")
    parameters = _assignments(parameter, "--parameter sigma=1,8")
    how |= {"parameters": parameters or None, "axes": _axes(_assignments(axis, "--axis 2=3"))}
    given = {name: keywords.pop(name) if name in keywords else max(values) for name, values in parameters.items()}
    what: dict[str, Any] = {"command": function} if "{0}" in function else {"function": _find(function)}
    if "function" in what:
        _check_call(function, what["function"], {*keywords, *parameters})
    if keywords:
        what = {"function": partial(_needs_function(what), **keywords)}
    if model is not None and model.exists():
        learned = load(model, **what, **how)
    else:
        learned = learn(**what, **how)
        if model is not None:
            learned.save(model)
    uncalled, learned = learned, learned.called_with(**given)
    near |= {"threads": threads, "workers": workers}
    cut: dict[str, Any] | None = near
    said = ""
    if allowed is not None and library == "numpy" and "function" in what and not (near["halo"] or near["whole"]):
        legal = {axis: lengths[axis] for axis, values in enumerate(learned.layout.legal) if values is not None}
        cut, said = _reaching(near, partial(what["function"], **given), lengths, dtype, legal)
    if as_json:
        typer.echo(json.dumps(_told(learned, lengths, allowed, cut, said), indent=2))
        return
    typer.echo(plain(uncalled.explain()))
    called = "".join(f", {name}={value}" for name, value in given.items())
    typer.echo(f"\n{lengths}{called}: {learned.predict(lengths)}")
    if said:
        typer.echo(plain(said))
    if allowed is not None and cut is not None:
        chunks = learned.chunks(lengths, allowed, **cut)
        typer.echo(f"chunks within {to_text(allowed)}: {chunks}, each {learned.predict(chunks)}")
    try:
        draw(learned, picture, lengths)
    except FootprintError as error:  # all else was asked for too, and is said
        typer.echo(plain(f"no picture: {error}"))
    else:
        typer.echo(plain(f"measured against predicted: {picture}"))


def _reaching(
    near: dict[str, Any], function: Callable[..., Any], lengths: tuple[int, ...], dtype: str, legal: dict[int, int]
) -> tuple[dict[str, Any] | None, str]:
    """Return how to cut with the halo and whole axes that are found, None where blocks do not do; and what to say."""
    from forebay.footprint import CutError, FootprintError, find_reach

    try:
        reach = find_reach(function, len(lengths), dtype, axes=legal)
    except CutError as error:
        return None, f"no chunks: {error}"
    except FootprintError as error:
        return near, f"whether blocks give what the whole gives is not known: {error}"
    said = f"halo {reach.halo}, whole axes {reach.whole or 'none'}: blocks of small arrays gave the whole"
    return near | {"halo": reach.halo, "whole": reach.whole}, said


def _told(
    learned: "Model", lengths: tuple[int, ...], allowed: int | None, cut: dict[str, Any] | None, said: str
) -> dict[str, Any]:
    """Return what was learned as plain values; chunks are null where none can be cut, and `why` tells the reason."""
    estimate = learned.predict(lengths)
    told: dict[str, Any] = {"name": learned.name, "shape": lengths, "bytes": estimate.bytes, "upper": estimate.upper}
    told |= {"risk": estimate.risk, "place": estimate.place, "seconds": estimate.seconds}
    if allowed is None:
        return told
    if cut is None:
        return told | {"chunks": None, "why": said}
    return told | {"chunks": learned.chunks(lengths, allowed, **cut), "halo": cut["halo"], "why": said}


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


def _assignments(texts: list[str] | None, example: str) -> dict[str, Any]:
    """Read NAME=VALUE: numbers and what else Python writes out, several between commas as a tuple; else the text."""
    values: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ForebayError(f"cannot read {text!r}: write it like {example}")
        try:
            values[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            values[name] = value
    if "parameter" in example and (wrong := [name for name, value in values.items() if not isinstance(value, tuple)]):
        raise ForebayError(f"--parameter {wrong[0]} needs its least and its most, or all of its values: {example}")
    return values


def _axes(lengths: dict[str, Any]) -> dict[int, Any] | None:
    """Read the lengths of axes: one, several, or a range with colons."""
    try:
        return {
            int(axis): range(*map(int, rule.split(":"))) if isinstance(rule, str) else rule
            for axis, rule in lengths.items()
        } or None
    except (ValueError, TypeError):
        raise ForebayError("cannot read --axis: write it like 2=3, 0=16,32,64 or 0=16:4096:16") from None


def _needs_function(what: dict[str, Any]) -> Callable[..., Any]:
    if "function" not in what:
        raise ForebayError("a command is called with no --keyword but those of --parameter: write others into it")
    return what["function"]  # type: ignore[no-any-return]


def _check_call(name: str, function: Callable[..., Any], given: set[str]) -> None:
    """Raise where a function needs more than an array and what it is given, as far as it tells."""
    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # of C, and known to nobody
        return
    told_by_dask = {"block_id", "block_info"}
    needed = [
        each.name
        for each in parameters[1:]
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if missing := [each for each in needed if each not in given | told_by_dask]:
        raise ForebayError(
            f"{name} needs {', '.join(missing)} too: add {' '.join(f'--keyword {n}=4' for n in missing)}"
        )
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if not anything and (unknown := sorted(given - {each.name for each in parameters})):
        takes = ", ".join(each.name for each in parameters[1:]) or "nothing but its array"
        raise ForebayError(f"{name} takes no {', '.join(unknown)}: it takes {takes}")


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
