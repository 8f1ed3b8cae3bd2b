"""NVIDIA's nvCOMP: its library, the `bitcomp` codec on it, and the seal around streams that it does not check."""

from forebay.codec.nvcomp.library import available as available
