"""Codecs make a snapshot smaller and whole again: found by name, alike on CPU and GPU."""

from forebay.codec.codec import Codec as Codec
from forebay.codec.codec import Encoded as Encoded
from forebay.codec.codec import get as get
from forebay.codec.registry import names as names
from forebay.codec.registry import register as register
