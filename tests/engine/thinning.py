"""An exact codec whose sizes follow the data, and a loop whose data shrink by more or less as it goes."""

import numpy as np

from forebay.codec import Codec

POINTS = 8192


class Thin(Codec):
    """Leaves the zeros at the end of an array away."""

    name = "thin"

    def handles(self, dtype):
        return dtype == np.float64

    def max_bytes(self, shape, dtype):
        return 8 + 8 * int(np.prod(shape))

    def encode_host(self, array, out):
        values = array.reshape(-1)
        count = int(np.flatnonzero(values).max(initial=-1)) + 1
        out[:8].view(np.uint64)[0] = 8 + 8 * count
        out[8 : 8 + 8 * count].view(np.float64)[:] = values[:count]
        return 8 + 8 * count

    def decode_host(self, payload, out):
        values = payload[8:].view(np.float64)
        out.reshape(-1)[: values.size] = values
        out.reshape(-1)[values.size :] = 0


class ThinLoop:
    """Two fields that fill as the loop goes on, and a counter that the codec does not know."""

    def __init__(self, filling):
        self.filling = filling
        self.state = (np.zeros(POINTS), np.zeros((2, POINTS // 2)), np.zeros(5, np.int32))
        self.seen = []

    def forward(self, state, start, stop):
        assert start < stop
        u, v, count = (array.copy() for array in state)
        for step in range(start, stop):
            reach = min(POINTS, 1 + int(self.filling(step) * POINTS))
            u[:reach] = np.sin(u[:reach] + step)
            u[reach:] = 0
            v.reshape(-1)[:reach] += u[:reach]
            v.reshape(-1)[reach:] = 0
            count += 1
        return u, v, count

    def backward(self, state, step):
        self.seen.append((step, *(hash(array.tobytes()) for array in state)))

    def expect(self, steps, take=lambda state: state):
        state, states = self.state, []
        for step in range(steps):
            states.append((step, *(hash(array.tobytes()) for array in take(state))))
            state = self.forward(state, step, step + 1)
        return states[::-1]
