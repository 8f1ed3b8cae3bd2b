"""The page on which plans follow sliders, and the answers that it asks for: each is made by the planner itself."""

from collections.abc import Mapping
from html import escape
from math import isfinite, log10
from pathlib import Path
from typing import NamedTuple

from forebay.drawing.page import SCRIPT, STYLE
from forebay.errors import ForebayError, PlanError
from forebay.planner import CodecCost, Costs, Link
from forebay.planner import plan as make_plan
from forebay.planner.plan import MOST_DRAWN
from forebay.units import Budget, seconds_to_text

SLIDERS_SCRIPT = Path(__file__).with_name("explorer.js")
LOOKS = """
form { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(250px, 100%), 1fr)); gap: 6px 22px; }
label { display: flex; justify-content: space-between; font-size: 13px; color: var(--soft); }
output { color: var(--ink); }
input { width: 100%; margin: 0; }
#seconds { font-size: 22px; font-weight: 600; }
"""
CODEC = "codec"
MOST_STEPS = 100_000


class Slider(NamedTuple):
    """Something that can be moved, from the least to the most."""

    name: str
    text: str
    least: float
    most: float
    first: float
    kind: str
    off: str = ""
    """what the lowest position means, where it means that there is none"""


SLIDERS = (
    Slider("steps", "steps of the loop", 10, MOST_STEPS, 3751, "count"),
    Slider("state", "bytes of a state", 1e3, 1e11, 1.13e9, "bytes"),
    Slider("device", "device budget", 1e6, 2e11, 8e9, "bytes", "none"),
    Slider("host", "host budget", 1e6, 2e12, 6.4e10, "bytes", "none"),
    Slider("disk", "disk budget", 1e6, 1e14, 1e6, "bytes", "none"),
    Slider("link", "link to the host", 1e8, 1e12, 5.5e10, "rate"),
    Slider("disk_link", "link to the disk", 1e7, 1e11, 2e9, "rate"),
    Slider("copy", "copies in the first tier", 1e9, 1e13, 2e12, "rate"),
    Slider("forward", "a step forward", 1e-6, 1e2, 8e-4, "seconds"),
    Slider("backward", "a step backward", 1e-6, 1e2, 8e-4, "seconds"),
    Slider("ratio", "a codec makes smaller by", 1, 100, 1, "count", "no codec"),
    Slider("coding", "bytes a second of the codec", 1e8, 1e13, 1e12, "rate"),
)


def page() -> str:
    """Return the page."""
    rows = "".join(map(_row, SLIDERS))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Forebay: explore</title>\n'
        f"<style>\n{STYLE.read_text()}{LOOKS}</style>\n</head>\n<body>\n<main>\n"
        "<h1>What would the planner do?</h1>\n"
        '<p class="lead">Move something, and the plan follows: what is kept where, what is computed again, and how '
        f'long it takes by prediction.</p>\n<div class="card"><form>{rows}</form></div>\n'
        '<p>predicted: <span id="seconds"></span></p>\n<div class="card" id="drawn"></div>\n'
        '<div class="card"><pre id="explained"></pre></div>\n</main>\n'
        f"<script>{SCRIPT.read_text()}</script>\n<script>{SLIDERS_SCRIPT.read_text()}</script>\n</body>\n</html>\n"
    )


def _row(slider: Slider) -> str:
    off = f' data-off="{escape(slider.off)}"' if slider.off else ""
    ends = f'min="{log10(slider.least)}" max="{log10(slider.most)}" value="{log10(slider.first)}"'
    return (
        f'<div><label for="{slider.name}">{escape(slider.text)}<output for="{slider.name}"></output></label>'
        f'<input type="range" id="{slider.name}" name="{slider.name}" {ends} step="any" data-log="1" '
        f'data-kind="{slider.kind}"{off}></div>'
    )


def answer(asked: Mapping[str, str]) -> dict[str, str]:
    """Plan what the sliders say; what no plan fits into is told in the planner's own words.

    Examples
    --------
    >>> found = answer({"steps": "100", "state": "1e6", "host": "1e7"})
    >>> sorted(found), "reverse" in found["explained"] or "steps" in found["explained"]
    (['drawn', 'explained', 'seconds'], True)
    """
    try:
        values = {slider.name: _value(asked, slider) for slider in SLIDERS}
        amounts = {tier: values[tier] for tier in ("device", "host", "disk")}
        codec = {}
        if values["ratio"] is not None and values["ratio"] > 1:
            codec = {CODEC: CodecCost(values["ratio"], values["coding"] or 1e12, values["coding"] or 1e12)}
        link, disk = (values[name] or 1e9 for name in ("link", "disk_link"))
        costs = Costs(
            forward=values["forward"] or 0.0,
            backward=values["backward"] or 0.0,
            copy=values["copy"] or 1e12,
            host=Link(link, link),
            disk=Link(disk, disk),
            codecs=codec,
        )
        steps, state = int(values["steps"] or 0), int(values["state"] or 0)
        plan = make_plan(steps, state, Budget(**amounts), costs=costs, codec=list(codec) or None, hurry=True)
    except ForebayError as error:
        return {"error": str(error)}
    drawn = plan.plot().markup if len(plan.schedule) <= MOST_DRAWN else "<p>too many actions to be drawn</p>"
    return {"seconds": seconds_to_text(plan.seconds), "explained": plan.explain(), "drawn": drawn}


def _value(asked: Mapping[str, str], slider: Slider) -> float | None:
    """Read what a slider says, as far as it can be moved; None where it says that there is none."""
    if slider.name not in asked:
        return None if slider.off else slider.first
    try:
        value = float(asked[slider.name])
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not 0.99 * slider.least <= value <= 1.01 * slider.most:
        raise PlanError(f"{slider.text}: give a number between {slider.least:g} and {slider.most:g}")
    return value
