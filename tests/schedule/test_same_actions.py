"""A name means the same actions, always: plans on disk say the name of a schedule, and jobs go on with them later.

`python -m tests.schedule.test_same_actions` prints the table anew, where a schedule is meant to change.
"""

from functools import cache
from random import Random

import pytest
from xxhash import xxh3_64_hexdigest

from forebay.schedule import Foreign, Forward, Online, Save, Weighted, named
from forebay.schedule.learning import LearningSweep
from forebay.schedule.online import back
from forebay.schedule.weighted import WeightedSplits

ACTIONS = {
    ("storeall", 1): ["a5c3fe9e09224027", 5, 1, 1, 1, 1],
    ("storeall", 17): ["8718e76a4914b358", 85, 17, 17, 17, 17],
    ("uniform:1", 9): ["bca834920d47b364", 29, 45, 1, 1, 1],
    ("uniform:7", 7): ["0bdfa9c412671a2d", 35, 7, 7, 7, 7],
    ("uniform:7", 50): ["d83258ba088ff78c", 164, 219, 7, 7, 7],
    ("uniform:7", 51): ["cd6e50af9054ac05", 167, 222, 7, 7, 7],
    ("zcut:30", 100): ["0a09d360173e274b", 452, 172, 76, 28, 28],
    ("zcut:30", 225): ["df7e2fa91edcefa4", 1097, 421, 211, 29, 29],
    ("zcut:12", 13): ["fe7a411ba756c975", 53, 19, 7, 7, 7],
    ("zcut:12", 36): ["aa2b9d6665d5cef7", 170, 61, 31, 11, 11],
    ("revolve:1", 1): ["a5c3fe9e09224027", 5, 1, 1, 1, 1],
    ("revolve:1", 12): ["aa847071bd86c75f", 38, 78, 1, 1, 1],
    ("revolve:2", 2): ["3f593f5aadb66bb3", 10, 2, 2, 2, 2],
    ("revolve:2", 60): ["2d4f625650d44844", 200, 390, 10, 2, 2],
    ("revolve:5", 6): ["8628fa5bfdb9c1aa", 28, 7, 5, 5, 5],
    ("revolve:5", 127): ["b393a4ed26227798", 521, 430, 70, 5, 5],
    ("revolve:5", 800): ["daa2c8de9035aa6e", 3060, 4692, 330, 5, 5],
    ("revolve:20", 20): ["ba010bbf8566be93", 100, 20, 20, 20, 20],
    ("revolve:20", 21): ["a03aee73a965b9a6", 103, 22, 20, 20, 20],
    ("revolve:20", 700): ["259fa4b24a897652", 3040, 1850, 470, 20, 20],
    ("twolevel:1", 8): ["faa4ef07aa2b7d49", 40, 8, 8, 8, 8],
    ("twolevel:9", 9): ["4580b54076578641", 45, 9, 9, 9, 9],
    ("twolevel:9", 50): ["f468f499f00c602e", 240, 90, 45, 12, 10],
    ("twolevel:32,8", 32): ["14f483753a14c44c", 142, 55, 23, 9, 9],
    ("twolevel:32,8", 33): ["3b0d3aab28b34997", 145, 86, 23, 9, 2],
    ("twolevel:32,8", 500): ["8f45fe0770047358", 2182, 1306, 341, 24, 24],
    ("twolevel:10,0", 45): ["9d01a7578586da0d", 145, 235, 5, 5, 5],
    ("hierarchical:4", 300): ["28d15c7565606a96", 1082, 1645, 91, 4, 4],
    ("hierarchical:2,14@30", 150): ["1cc902814caeb8e8", 550, 540, 50, 11, 11],
    ("hierarchical:2,14@30", 400): ["9993a2aad2e7965b", 1432, 1764, 116, 16, 16],
    ("hierarchical:1,3@2.5", 60): ["6315ef370f0607c8", 220, 194, 20, 4, 4],
    ("hierarchical:3,70@0.5", 300): ["8d46c5d3ee90f148", 1354, 527, 227, 73, 73],
    ("hierarchical:2,14@12.7", 450): ["019638880bbc6890", 1678, 1720, 164, 16, 16],
    ("hierarchical:2,14@12.7", 3000): ["96cdf0ea77dbf4e9", 11112, 14264, 1056, 16, 16],
    ("hierarchical:2,3@4,5@20", 90): ["4476a92110ebf1cc", 344, 307, 37, 5, 5],
    ("hierarchical:2,3@4,5@20", 1000): ["1469d4e608376d3a", 3870, 4110, 435, 10, 10],
    ("hierarchical:1,2@1,3@5,9@40", 700): ["33a256db0d5a9943", 2530, 2638, 215, 15, 15],
    ("online:1", 5): ["47c709db897612fb", 20, 15, 1, 1],
    ("online:4", 4): ["d169316a41fe3327", 20, 4, 4, 4],
    ("online:4", 5): ["7f0cf07051d076ff", 27, 7, 5, 4],
    ("online:4", 120): ["d9cda5477ea817cd", 514, 485, 62, 4],
    ("online:9", 300): ["5d7a160f0726f9dd", 1464, 950, 236, 9],
    ("online:9", 1201): ["61248ed2f8a5414d", 5433, 5024, 799, 9],
    ("weighted:1", 9): ["bca834920d47b364", 29, 45, 1, 1],
    ("weighted:3", 40): ["e8b87cb8458c725b", 142, 154, 11, 3],
    ("weighted:3", 300): ["c81153675746d7fd", 994, 2662, 47, 3],
    ("weighted:12", 200): ["b508bef9e076ad2d", 862, 514, 131, 12],
    ("weighted:12", 900): ["174e75dc5b8f208a", 3806, 3158, 553, 12],
    ("learning:1/1", 20): ["3412d83185a69208", 81, 210, 1, 1],
    ("learning:3/1", 60): ["13374601ca15eb92", 295, 270, 29, 3],
    ("learning:8/4", 150): ["f06a3174f43acca6", 708, 421, 114, 8],
    ("learning:40/1", 90): ["5ac11a37d8441bf1", 542, 140, 111, 40],
}
"""A checksum of all actions, and the numbers that a schedule tells without being run."""


@cache
def costs_of(steps):
    """Costs of steps: none like another, and some far dearer."""
    random = Random(steps)
    return tuple(random.lognormvariate(0, 1) * (20 if random.random() < 0.05 else 1) for _ in range(steps))


def schedule_of(name, steps):
    if not name.startswith("learning:"):
        return named(name, steps, costs_of(steps))
    snapshots, lap = map(int, name.partition(":")[2].split("/"))
    costs, sweep, actions = costs_of(steps), LearningSweep(steps, snapshots, lap), [Save(0)]
    for start in range(0, steps, lap):
        stop = min(start + lap, steps)
        actions += [Forward(start, stop), *sweep.learn(sum(costs[start:stop]))]
    actions += back(sweep.kept, steps, snapshots, splits=WeightedSplits(costs, snapshots).split)
    return Foreign(steps, tuple(actions))


def told_of(name, steps):
    schedule = schedule_of(name, steps)
    actions = list(schedule)
    numbers = [len(schedule), schedule.forward_steps, schedule.saves, schedule.peak_snapshots]
    if not isinstance(schedule, Online | Weighted | Foreign):
        numbers.append(schedule.alive_at_turn)
    return [xxh3_64_hexdigest(repr(actions).encode()), *numbers]


@pytest.mark.parametrize(("name", "steps"), list(ACTIONS))
def test_a_name_means_the_same_actions_as_ever(name, steps):
    assert told_of(name, steps) == ACTIONS[name, steps]


if __name__ == "__main__":
    for name, steps in ACTIONS:
        print(f"    ({name!r}, {steps}): {told_of(name, steps)},".replace("'", '"'))
