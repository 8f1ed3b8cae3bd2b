"""Changes of the sources are noticed by the fast tests; the tool that counts them makes those that it says."""

import json
import os
import sys
import tomllib
from itertools import count
from pathlib import Path
from time import sleep

import pytest
from tests.mutation import server
from tests.mutation.campaign import EQUIVALENT, TESTS, campaign, record, summary
from tests.mutation.mutants import entries, mutants

SOURCE = '''\
"""A text, which stays."""
from functools import cache

LIMIT = 3


@cache
def least(numbers: list[int] = (), most=2.5) -> int | None:
    """Return something."""
    for number in numbers:
        if number < LIMIT and not most:
            continue
        if number:
            raise ValueError(f"{number + 1} is wrong")
    numbers.sort()
    prefetch(numbers, 8 + most)
    zip(numbers, numbers, strict=True)
    return min(numbers) * 2 if numbers else None


def nothing():
    """Return nothing."""
'''

CHANGES = {
    "LIMIT = 3 => LIMIT = 4",
    "def least(numbers: list[int] = (), most=2.5) -> int | None: => "
    "def least(numbers: list[int] = (), most=3.5) -> int | None:",
    "if number < LIMIT and not most: => if (number <= LIMIT) and not most:",
    "if number < LIMIT and not most: => if (number >= LIMIT) and not most:",
    "if number < LIMIT and not most: => if (number < LIMIT or not most):",
    "if number < LIMIT and not most: => if number < LIMIT and most:",
    "continue => break",
    "if number: => if not number:",
    'raise ValueError(f"{number + 1} is wrong") => pass',
    "numbers.sort() => pass",
    "zip(numbers, numbers, strict=True) => pass",
    "return min(numbers) * 2 if numbers else None => return None",
    "return min(numbers) * 2 if numbers else None => return max(numbers) * 2 if numbers else None",
    "return min(numbers) * 2 if numbers else None => return (min(numbers) // 2) if numbers else None",
    "return min(numbers) * 2 if numbers else None => return min(numbers) * 3 if numbers else None",
    "return min(numbers) * 2 if numbers else None => return None if numbers else min(numbers) * 2",
}


def test_each_kind_of_change_is_made_once_and_texts_stay(tmp_path):
    (tmp_path / "source.py").write_text(SOURCE)
    made = {mutant.key.removeprefix("source.py: "): mutant for mutant in mutants(tmp_path, "source.py")}
    assert set(made) == CHANGES
    for mutant in made.values():
        compile(mutant.source, mutant.file, "exec")
    assert made["continue => break"].place == made["continue => break"].line == 12
    assert made["LIMIT = 3 => LIMIT = 4"].place is None
    assert entries(tmp_path, "source.py") == [10]


@pytest.mark.slow
def test_what_nobody_can_notice_is_still_there_to_be_changed():
    root, known = Path(__file__).parents[2], tomllib.loads(EQUIVALENT.read_text())
    files = {key.partition(": ")[0] for key in known}
    assert known.keys() <= {mutant.key for file in files for mutant in mutants(root, file)}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="processes as Linux has them")
@pytest.mark.parametrize("room", TESTS)
def test_nine_of_ten_changes_are_noticed(room, tmp_path):
    """A sample of each room."""
    count = int(os.environ.get("FOREBAY_MUTANTS", 40))
    told = campaign(tmp_path / "mutants.json", rooms=[room], count=count, seed=count, processes=2)
    print(json.dumps(told["rooms"]))
    survivors = [each for each in told["mutants"] if each["outcome"] in ("survived", "untouched")]
    assert told["rooms"][room]["share"] >= 0.9, survivors


@pytest.mark.skipif(sys.platform != "linux", reason="processes as Linux has them")
@pytest.mark.parametrize(
    ("does", "seconds", "status"),
    [(lambda: os._exit(3), 9.0, 3), (lambda: sleep(60), 9.0, 124), (lambda: [None for _ in count()], 0.1, 124)],
    ids=["ends", "hangs", "goes on"],
)
def test_tests_are_waited_for_until_they_have_worked_too_long_or_do_nothing(does, seconds, status, monkeypatch):
    monkeypatch.setattr(server, "STILL", 0.3 if status == 124 and seconds > 1 else 60.0)
    child = os.fork()
    if child == 0:
        os.setsid()
        does()
    assert server.wait(child, seconds) == status


def test_counts_are_written_over_those_of_the_same_changes(tmp_path):
    counts, outcomes = tmp_path / "counts.json", ("killed", "timeout", "survived", "untouched", "equivalent")
    rooms = summary([{"room": "tier", "outcome": outcome} for outcome in outcomes], {"tier": 535})
    other = {"codec": {"noticed": 9, "tried": 10, "equivalent": 0, "share": 0.9}}
    for seed, where, told in ((1, "there", other), (1, "there", rooms), (2, "there", rooms), (2, "here", rooms)):
        record({"seed": seed, "where": where, "rooms": told}, counts)
    first, second, codec = json.loads(counts.read_text())["rows"]
    assert second == {"room": "tier", "noticed": 2, "tried": 4, "share": 0.5, "seed": 2, "where": "here"}
    assert first == second | {"seed": 1, "where": "there"}
    assert (codec["room"], codec["tried"], codec["seed"]) == ("codec", 10, 1)


def test_every_room_has_tests_that_are_there():
    root = Path(__file__).parents[2]
    for room, paths in TESTS.items():
        assert (root / "src/forebay" / room).is_dir()
        assert all((root / path).exists() for path in paths), room
