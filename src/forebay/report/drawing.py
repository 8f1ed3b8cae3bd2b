"""The libraries that draw, loaded when a picture or a page is made: most runs make neither."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from forebay.errors import ForebayError, needs

LIBRARIES = ("matplotlib",)
"""What pictures are made with."""


def missing() -> list[str]:
    """List those of the libraries that are not installed."""
    return [library for library in LIBRARIES if find_spec(library) is None]


def load(module: str, what: str) -> Any:
    """Import a module of Matplotlib.

    Parameters
    ----------
    module
        Its dotted name.
    what
        What is made with it, for the error where it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ForebayError(needs(what, module.partition(".")[0], "plots")) from error


def load_pyplot() -> Any:
    """Import Matplotlib's pyplot for pictures in files: it opens no window."""
    load("matplotlib", "a picture").use("Agg")
    return load("matplotlib.pyplot", "a picture")
