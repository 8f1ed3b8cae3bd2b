"""Reversals that survive the end of their process: progress kept in a directory, from which the same call goes on."""

from forebay.engine.resume.decision import Adjoint as Adjoint
from forebay.engine.resume.decision import Loop as Loop
from forebay.engine.resume.segments import reverse_in_segments as reverse_in_segments
