"""The kinds of work on shots, by name."""

from forebay.wave.job.inversion.echoes import Echoing, Scattering, SendingBack
from forebay.wave.job.inversion.passes import Differentiating, Hearing, Lighting, Modelling, Sounding
from forebay.wave.job.shots.kind import ShotKind
from forebay.wave.job.work import Migrating
from forebay.wave.job.workspace import ShotWork

KINDS: dict[str, ShotKind] = {
    "migration": Migrating(),
    "data": Modelling(),
    "sources": Sounding(),
    "light": Lighting(),
    "gradient": Differentiating(),
    "gathers": Hearing(),
    "echoes": Echoing(),
    "scatter": Scattering(),
    "back": SendingBack(),
}


def kind_of(work: ShotWork) -> ShotKind:
    """Return what does some work."""
    return KINDS[work.kind]
