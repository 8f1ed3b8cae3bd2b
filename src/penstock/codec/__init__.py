"""Codecs make a snapshot smaller and whole again: found by name, alike on CPU and GPU."""

from penstock.codec.codec import Codec as Codec
from penstock.codec.codec import Encoded as Encoded
from penstock.codec.registry import get as get
from penstock.codec.registry import names as names
from penstock.codec.registry import register as register
