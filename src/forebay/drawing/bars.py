"""Bars one on top of the other."""

from collections.abc import Mapping, Sequence

from forebay.drawing.chart import Chart, Series, Subplot, Tip

ROOM = 0.8
"""Of the room of a bar that it fills."""


def bars_chart(
    series: Mapping[str, Sequence[float]], labels: Sequence[str], across: str, up: str, colours: Mapping[str, str]
) -> Chart:
    """Draw bars one on top of the other: one series a colour.

    Parameters
    ----------
    series
        The heights in each colour, by name.
    labels
        Of the bars.
    across, up
        What the axes count.
    colours
        By the name of a series; others are grey.
    """
    count = len(labels)
    heights = [sum(values[number] for values in series.values()) for number in range(count)]
    reached, marks = [0.0] * count, []
    for name, values in series.items():
        boxes = []
        for number, value in enumerate(values):
            left, right = number + (1 - ROOM) / 2, number + (1 + ROOM) / 2
            low, high = reached[number], reached[number] + value
            if value:
                boxes.append([(left, low), (left, high), (right, high), (right, low)])
            reached[number] = high
        marks.append(Series(name, colours.get(name, "#8a8f98"), boxes, filled=True))
    top = 1.08 * max([*heights, 1e-9])
    tips = []
    for number, text in enumerate(labels):
        parts = [f"{name}: {values[number]:.4g}" for name, values in series.items() if values[number]]
        tips.append(
            Tip(number, number + 1, 0, top, "\n".join([f"{across} {text}, {up}: {heights[number]:.4g}", *parts]))
        )
    return Chart([Subplot(marks, up, top, tips=tips)], across, float(count), columns=labels)
