"""`bounded`: every value comes back within a bound that is given, on CPU and GPU alike, at the speed of memory."""

from forebay.codec.bounded.codec import Bounded as Bounded
