"""States as trees: taken apart and put together as they were, in the order in which they were made."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import replace

import numpy as np
import pytest

from forebay.engine.layout import Layout, arrays_of
from forebay.engine.states.sharing import sharing_with_gaps
from forebay.errors import StateError

Fields = namedtuple("Fields", "pressure velocity")
A, B, C = (np.full(3, value) for value in (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    "tree", [(A, B), [A, [B, C]], {"z": A, "a": B}, {2: A, "one": (B, C)}, Fields(A, (B, C)), A, {"u": [A], "v": {}}]
)
def test_trees_come_back_as_they_were(tree):
    layout = Layout.of(tree)
    arrays = layout.check(tree)
    assert len(arrays) == len(layout.leaves)
    again = layout.build(arrays)
    assert type(again) is type(tree) and repr(again) == repr(tree)


class Mapping(dict):
    pass


class Wavefields(list):
    pass


class Pair(tuple):
    pass


@pytest.mark.parametrize(
    "tree", [Wavefields([A, B]), Pair([A, Pair([B])]), OrderedDict(z=A, a=B), defaultdict(int, z=A)]
)
def test_derived_lists_and_tuples_keep_their_type_as_ordered_and_default_dicts_do(tree):
    layout = Layout.of(tree)
    again = layout.build(layout.check(tree))
    assert type(again) is type(tree) and repr(again) == repr(tree)


def test_derived_dicts_come_back_as_dicts():
    class Ordered(OrderedDict):
        pass

    for kind in (Mapping, Ordered):
        tree = kind(z=A, a=Wavefields([B, kind(c=C)]))
        layout = Layout.of(tree)
        again = layout.build(layout.check(tree))
        assert repr(again) == repr({"z": A, "a": [B, {"c": C}]})
        assert (type(again), type(again["a"]), type(again["a"][1])) == (dict, Wavefields, dict)


def test_values_of_a_dict_come_in_the_order_of_its_keys_as_they_were_put_there():
    assert [array[0] for array in arrays_of({"z": A, "a": B, 1: C})] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("tree", [(A, None), (A, 1.5), {"u": "text"}])
def test_what_is_no_array_is_refused(tree):
    with pytest.raises(StateError, match="arrays of NumPy"):
        Layout.of(tree)


@pytest.mark.parametrize("tree", [(), [], {}])
def test_a_state_without_arrays_is_refused(tree):
    with pytest.raises(StateError, match="no arrays"):
        Layout.of(tree)


def test_arrays_begin_at_multiples_of_the_alignment_and_snapshots_fill_sectors():
    layout = Layout.of((A, B, C))
    assert [leaf.offset for leaf in layout.leaves] == [0, 256, 512] and layout.nbytes == 4096


def test_what_is_locked_is_seen_and_cannot_be_written_to():
    already, fresh = A.view(), B.copy()
    already.flags.writeable = False
    locked = Layout.of((A, B)).locked((already, fresh))
    assert locked[0] is already and locked[1].base is fresh and not locked[1].flags.writeable
    assert fresh.flags.writeable


def test_arrays_of_which_nobody_can_tell_soon_are_taken_to_share_memory():
    memory = np.zeros(3_301_565, np.int8)
    woven = np.lib.stride_tricks.as_strided(memory, [15] * 6, [59715, 37017, 57038, 2947, 28682, 50427])
    assert sharing_with_gaps([woven, memory[1100521:1100522]], [woven.nbytes, 1]) == (0, 1)


def test_an_array_that_is_elsewhere_is_refused_in_words(monkeypatch):
    layout = Layout.of((A,))
    on_gpu = replace(layout, likenesses=(layout.likenesses[0]._replace(device=0, signature=None),))
    with pytest.raises(StateError, match=r"returned state\[0\] on the host, but the state is on cuda:0: move it there"):
        on_gpu.match((B,))
    on_host = replace(layout, likenesses=(layout.likenesses[0]._replace(signature=None),))
    monkeypatch.setattr(type(layout.likenesses[0].library), "device", lambda library, array: 1)
    with pytest.raises(StateError, match=r"on cuda:1, but the state is on the host"):
        on_host.match((B,))
