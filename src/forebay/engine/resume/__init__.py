"""Reversals that survive the end of their process: progress kept in a directory, from which the same call goes on."""

from forebay.engine.resume.asked import Adjoint as Adjoint
from forebay.engine.resume.decision import SurvivingLoop as SurvivingLoop
from forebay.engine.resume.segments import reverse_in_segments as reverse_in_segments
