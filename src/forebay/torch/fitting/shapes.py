"""Profiles by shapes: iterations of smaller shapes follow the plan of larger ones, for they take no more memory."""

from collections import Counter

from forebay.torch.fitting.iteration import Iteration, IterationKey, within
from forebay.torch.fitting.profile import Profile
from forebay.torch.replay.block import FittedBlock

MOST_SHAPES = 64
"""Plans for so many sets of shapes are kept; those used longest ago go first."""
OFTEN = 4
"""Shapes that follow the plan of larger ones get one of their own when they come so often."""
FEW = 16
"""Where there are plans for so many sets of shapes, others only get one that are larger than all."""


class ShapeProfiles:
    """The profiles of a model on one device."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], FittedBlock] = {}
        """blocks that are taken together as one, by the identities of their modules"""
        self._profiles: dict[IterationKey, Profile] = {}
        self._came: Counter[IterationKey] = Counter()  # by shapes that follow the plan of larger ones

    def find(self, key: IterationKey) -> IterationKey:
        """Return the key of the profile that iterations follow which begin like this one: this, or of larger shapes."""
        profile = self._profiles.pop(key, None)
        if profile is None:
            larger = self._larger(key)
            if larger is not None:
                self._profiles[larger] = self._profiles.pop(larger)
                return larger
            profile = Profile()
        self._profiles[key] = profile
        while len(self._profiles) > MOST_SHAPES:
            del self._profiles[next(iter(self._profiles))]
        return key

    def __getitem__(self, key: IterationKey) -> Profile:
        """Return what is known by now, from the beginning where that is forgotten."""
        return self._profiles.get(key) or Profile()

    def __setitem__(self, key: IterationKey, profile: Profile) -> None:
        """Take over what was learned, unless that profile is forgotten."""
        if key in self._profiles:
            self._profiles[key] = profile

    def _larger(self, key: IterationKey) -> IterationKey | None:
        """Find the least shapes that are planned for and no smaller than these, unless they shall have their own."""
        planned = [
            other for other, profile in self._profiles.items() if profile.plan is not None and _holds(other, key)
        ]
        if not planned:
            return None
        larger = min(planned, key=lambda other: sum(shape.numel() for shape, *_ in other.signature))
        plan = self._profiles[larger].plan
        assert plan is not None
        if self._came[key] < OFTEN and (set(plan.names) == {"keep"} or len(self._profiles) >= FEW):
            return larger
        self._came[key] += 1
        return larger if self._came[key] < OFTEN else None

    def part(self, key: IterationKey) -> None:
        """Have shapes get a plan of their own: a kernel for these may take more than that for larger ones."""
        self._came[key] = OFTEN

    def note(self, iteration: Iteration) -> None:
        """Take note of how an iteration went."""
        if iteration.plan is None:
            return
        strangers = None in iteration.places
        if iteration.own:
            self[iteration.key] = self[iteration.key].meet(strangers)
        if strangers:
            self.groups.clear()  # blocks may have been replaced


def _holds(larger: IterationKey, key: IterationKey) -> bool:
    """Tell whether iterations that begin like one take no more memory than those that begin like another."""
    alike = larger[1:3] == key[1:3]
    return alike and within(key.signature, larger.signature) and within(key.called_with, larger.called_with)
