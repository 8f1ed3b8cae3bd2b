"""A loop whose records are windows of a field, and the same with records that are copies of them."""

import forebay as fb
from forebay.codec import Encoded

STEPS = 12
FIELD, WINDOW = (24, 30, 44), (slice(3, 20), slice(5, 26), slice(4, 40))


def field(arrays):
    """Return a field that is smooth, with a number that is none outside of the window."""
    z, y, x = (arrays.arange(extent, dtype=arrays.float32) for extent in FIELD)
    wave = arrays.sin(0.3 * z)[:, None, None] + arrays.cos(0.2 * y)[:, None] * arrays.sin(0.1 * x)
    wave[0, 0, 0] = arrays.nan
    return wave


def seen(initial, copy, codec, steps=STEPS, **how):
    """Reverse a loop; return what backward saw of its records, all dense, the result, and which were encoded."""

    def forward(state, start, stop):
        for _ in range(start, stop):
            state["p"] *= 1.0625
            state["p"] += 0.125
        return state

    def backward(record, step):
        if isinstance(record["p"], Encoded):
            encoded.append(step)
            record = {"p": record["p"].codec.decode(record["p"])}
        records.append((step, record["p"] * 1))
        strides.append(record["p"].stride() if hasattr(record["p"], "stride") else record["p"].strides)

    records, strides, encoded = [], [], []
    result = fb.reverse(
        forward,
        backward,
        {"p": initial},
        steps,
        record=lambda state, step: {"p": copy(state["p"][WINDOW])},
        codec=codec,
        **how,
    )
    item = 1 if hasattr(initial, "stride") else 4
    assert set(strides) == {(21 * 36 * item, 36 * item, item)}
    return records, result, encoded
