"""The contract of a state: kept exactly as it is, structure, order and type, or refused in words."""

from collections import OrderedDict, namedtuple
from dataclasses import InitVar, dataclass, field
from functools import cached_property

import numpy as np
import pytest

import forebay as fb
from forebay.errors import StateError

COSTS = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))
PLANS = ("storeall", "revolve:1", "revolve:2", "uniform:3", "auto")
Fields = namedtuple("Fields", "p q")


def reverse(forward, state, steps=7, schedule="revolve:2", backward=lambda state, step: None, **more):
    more = {"budget": "1MB", "costs": COSTS} | more
    return fb.reverse(forward, backward, state, steps, schedule=schedule, **more)


def start():
    return {"p": np.arange(6.0).reshape(2, 3), "q": np.ones((2, 3))}


def advanced(state):
    return {"p": 0.5 * state["p"] + state["q"], "q": 0.9 * state["q"] - 0.1 * state["p"]}


def returning(change):
    """Make a forward whose returns are changed."""

    def forward(state, begin, end):
        for _ in range(begin, end):
            state = advanced(state)
        return change(state)

    return forward


def states(count):
    kept = [start()]
    for _ in range(count - 1):
        kept.append(advanced(kept[-1]))
    return kept[::-1]


class TestStructure:
    @pytest.mark.parametrize("schedule", PLANS)
    @pytest.mark.parametrize("kind", [dict, OrderedDict])
    def test_a_dict_in_another_order_of_its_keys_is_the_same(self, schedule, kind):
        seen = []

        def backward(state, step):
            assert list(state) == ["p", "q"] and type(state) is dict
            seen.append([array.tobytes() for array in state.values()])

        reverse(returning(lambda s: kind(q=s["q"], p=s["p"])), start(), 20, schedule, backward)
        assert seen == [[array.tobytes() for array in state.values()] for state in states(20)]

    @pytest.mark.parametrize("schedule", ["revolve:1", "storeall"])
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda s: None, "forward returned None"),
            (lambda s: {"p": s["p"], "r": s["q"]}, r"q is missing, and r is not in the state"),
            (lambda s: {"p": s["p"]}, "q is missing"),
            (lambda s: s | {"r": s["p"]}, "r is not in the state"),
            (lambda s: {"p": s["p"], "q": [s["q"]]}, r"state\['q'\] is a list, .* an array belongs"),
            (lambda s: {"p": s["p"], "q": None}, r"state\['q'\].*NoneType"),
            (lambda s: (s["p"], s["q"]), "a tuple, where a dict belongs"),
            (lambda s: s["p"], "a ndarray, where a dict belongs"),
            (lambda s: s | {"q": s["q"].astype(np.float32)}, r"state\['q'\] as float32\[2, 3\].*float64\[2, 3\]"),
            (lambda s: s | {"q": s["q"][:, :2].copy()}, r"float64\[2, 2\].*float64\[2, 3\]"),
            (lambda s: s | {"q": s["q"].astype(">f8")}, r"state\['q'\] as >f8"),
            (lambda s: s | {"q": s["q"].tolist()}, r"state\['q'\] is a list"),
            (lambda s: s | {"q": 1.5}, r"state\['q'\].*float"),
            (lambda s: s | {"q": np.asfortranarray(s["q"])}, r"state\['q'\] with strides \(8, 16\).*\(24, 8\)"),
            (lambda s: s | {"q": np.repeat(s["q"], 2, 1)[:, ::2]}, r"state\['q'\].*gaps"),
            (lambda s: s | {"q": s["p"]}, r"state\['p'\] and state\['q'\] share memory"),
            (lambda s: {"p": (both := np.ones((3, 3)))[:2], "q": both[1:]}, "share memory"),
            (lambda s: s | {"q": np.ma.array(s["q"])}, r"state\['q'\].*MaskedArray"),
        ],
    )
    def test_what_is_not_the_state_is_refused_wherever_it_comes(self, change, says, schedule):
        with pytest.raises(StateError, match=says):
            reverse(returning(change), start(), 7, schedule, lambda state, step: pytest.fail("too late"))

    def test_every_return_is_looked_at_not_only_those_that_are_kept(self):
        def forward(state, begin, end):
            return state if end < 6 else {"p": state["p"].astype(np.float32), "q": state["q"]}

        with pytest.raises(StateError, match="float32"):
            reverse(forward, start(), 6, "revolve:1", turn=lambda final: pytest.fail("too late"))

    @pytest.mark.parametrize(
        ("tree", "other"),
        [
            ((np.ones(3), np.zeros(3)), list),
            ([np.ones(3), np.zeros(3)], tuple),
            (Fields(np.ones(3), np.zeros(3)), tuple),
            (Fields(np.ones(3), np.zeros(3)), lambda s: s),
        ],
    )
    def test_a_list_for_a_tuple_means_the_same_and_is_seen_as_the_state_was(self, tree, other):
        kinds = set()
        reverse(
            lambda s, a, b: (
                other([x + (b - a) for x in s] if other is not None else s)
                if other in (list, tuple)
                else type(s)(*(x + (b - a) for x in s))
            ),
            tree,
            backward=lambda s, t: kinds.add(type(s)) or np.testing.assert_array_equal(s[0], 1.0 + t),
        )
        assert kinds == {type(tree)}

    def test_another_named_tuple_is_another_structure(self):
        other = namedtuple("Other", "q p")
        with pytest.raises(StateError, match="Other, where a Fields belongs"):
            reverse(lambda s, a, b: other(*s), Fields(np.ones(3), np.zeros(3)))

    @pytest.mark.parametrize("keep", ["states", "records"])
    @pytest.mark.parametrize(
        ("record", "says"),
        [
            (lambda s, t: None if t == 4 else s["p"], "record returned"),
            (lambda s, t: {"p": s["p"]} if t < 4 else {"q": s["p"]}, "record returned"),
            (lambda s, t: s["p"] if t < 4 else s["p"].astype(np.float32), "record returned record as float32"),
        ],
    )
    def test_records_are_looked_at_too(self, record, says, keep):
        budget = "1MB" if keep == "records" else "9kB"
        schedule = "auto" if keep == "records" else "revolve:2"
        with pytest.raises(StateError, match=says):
            reverse(returning(lambda s: s), start(), 7, schedule, record=record, budget=budget)

    def test_records_in_another_order_of_keys_are_the_same(self):
        def record(state, step):
            pair = [("p", state["p"]), ("q", state["q"])]
            return dict(pair if step % 2 else pair[::-1])

        seen = {}
        reverse(
            returning(lambda s: s), start(), 7, "auto", lambda s, t: seen.update({t: s["q"].tobytes()}), record=record
        )
        assert seen == {6 - n: state["q"].tobytes() for n, state in enumerate(states(7))}


ORDERS = {
    "fortran": lambda x: np.asfortranarray(x),
    "transposed": lambda x: np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0),
    "moved": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, 1)).swapaxes(0, 1),
    "column": lambda x: np.asfortranarray(x[:, :1]),
}


def keeping_order(state, begin, end):
    """Advance by what depends on the order in memory: sums go along it."""
    (x,) = state
    for step in range(begin, end):
        x = x * 0.5 + x.sum() * 1e-3 + step
    return (x,)


class TestOrder:
    @pytest.mark.parametrize("codec", [None, "raw", "cast:float16"])
    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("schedule", PLANS)
    def test_strides_are_kept_whatever_the_plan(self, order, schedule, codec):
        initial = ORDERS[order](np.random.default_rng(0).standard_normal((13, 7, 11)).astype(np.float32))
        codec_costs = {codec: fb.CodecCost(4, 1e15, 1e15, worst=1.1)} if codec else {}
        costs = fb.Costs(1.0, 1e-3, 1e9, codecs=codec_costs)
        seen, kept = [], [initial]
        for step in range(11):
            kept.append(keeping_order((kept[-1],), step, step + 1)[0])

        def backward(state, step):
            assert state[0].strides == initial.strides
            np.testing.assert_allclose(state[0], kept[step], rtol=2e-2, atol=1e-3)
            seen.append(
                (state[0].tobytes("A"), state[0].sum().tobytes(), (np.ones(13, "f4") @ state[0][..., 0]).tobytes())
            )

        reverse(keeping_order, (initial,), 12, schedule, backward, codec=codec, costs=costs)
        if codec != "cast:float16":
            expected = [(x.tobytes("A"), x.sum().tobytes(), (np.ones(13, "f4") @ x[..., 0]).tobytes()) for x in kept]
            assert seen == expected[::-1]

    def test_arrays_with_gaps_are_gathered_once_and_the_same_in_every_plan(self):
        initial = np.random.default_rng(0).standard_normal((20, 30))[::-2, 3:17]
        runs = set()
        for schedule in PLANS:
            seen = []
            reverse(
                keeping_order,
                (initial,),
                7,
                schedule,
                lambda s, t, seen=seen: seen.append((s[0].tobytes(), s[0].strides)),
            )
            runs.add(tuple(seen))
        assert len(runs) == 1 and seen[-1][0] == initial.tobytes()

    def test_a_record_is_dense_whatever_is_kept(self):
        runs = set()
        for schedule, budget in (("auto", "1MB"), ("revolve:2", "1MB")):
            seen = []
            result = reverse(
                keeping_order,
                (np.arange(600.0).reshape(20, 30),),
                7,
                schedule,
                lambda r, t, seen=seen: seen.append((r.tobytes(), r.strides, r.sum().tobytes())),
                record=lambda s, t: s[0][::3, ::2].T,
                budget=budget,
            )
            runs.add(tuple(seen))
            assert result.plan.keep == ("records" if schedule == "auto" else "states")
        assert len(runs) == 1

    def test_torch_tensors_keep_their_memory_format(self):
        torch = pytest.importorskip("torch")
        initial = torch.randn(2, 3, 5, 7).contiguous(memory_format=torch.channels_last)
        kept = [initial]
        for step in range(8):
            kept.append(keeping_order((kept[-1],), step, step + 1)[0])
        for schedule in PLANS:
            seen = {}
            reverse(
                keeping_order,
                (initial,),
                9,
                schedule,
                lambda s, t, seen=seen: seen.update({t: (s[0].clone(), s[0].stride(), float(s[0].sum()))}),
            )
            for step, (values, strides, total) in seen.items():
                assert strides == initial.stride() and torch.equal(values, kept[step])
                assert total == float(kept[step].sum())

    def test_axes_of_one_element_may_have_any_stride(self):
        reverse(lambda s, a, b: (s[0][:, 0][:, None] + 1,), (np.ones((5, 1)),))


def refused(state, says, forward=lambda *_: pytest.fail("a step")):
    with pytest.raises(StateError, match=says):
        fb.reverse(forward, lambda *_: None, state, 7, budget="1MB")


class Metres(np.ndarray):
    pass


X = np.arange(12.0)


class TestArrays:
    @pytest.mark.parametrize(
        ("state", "says"),
        [
            ({"u": np.ma.array([1.0, 2.0], mask=[0, 1])}, r"state\['u'\].*MaskedArray.*register_state"),
            ((np.ones((1, 1)).view(np.matrix),), r"state\[0\].*matrix"),
            ((np.rec.array([(1, 2.0)]),), "recarray"),
            ((X.view(Metres),), "Metres"),
            ((X, X), r"state\[0\] and state\[1\] share memory"),
            ((X, X[4:8]), "share memory"),
            ((X[::2], X[6:]), "share memory"),
            ({"a": X, "b": [X[::-1]]}, r"state\['a'\] and state\['b'\]\[0\] share memory"),
            ((np.broadcast_to(X, (3, 12)),), r"state\[0\].*on one another"),
            ((np.lib.stride_tricks.sliding_window_view(X, 3),), "on one another"),
            ((np.array([None]),), "objects"),
            ((np.array([(1, None)], dtype=[("a", int), ("b", object)]),), "objects"),
            ((np.array(["a"], dtype=np.dtypes.StringDType()),), "objects"),
            (([1.0, 2.0],), r"state\[0\]\[0\].*float"),
            ({"u": "text"}, "str"),
            ((X, None), r"state\[1\].*NoneType"),
        ],
    )
    def test_what_cannot_be_kept_is_refused_before_the_first_step(self, state, says):
        refused(state, says)

    def test_parts_of_one_array_that_do_not_overlap_are_apart(self):
        pairs = np.arange(20.0).reshape(10, 2)
        seen = []
        reverse(
            lambda s, a, b: (s[0] + (b - a), s[1] - (b - a)),
            (pairs[:, 0], pairs[:, 1], X[:6], X[6:])[:2],
            backward=lambda s, t: seen.append(s[0][0] + s[1][0]),
        )
        assert seen == [1.0] * 7

    @pytest.mark.parametrize(
        "array",
        [
            np.array(3.0),
            np.zeros((0, 4)),
            np.zeros((4, 0), order="F"),
            np.array([True, False]),
            np.arange(3) * 1j,
            np.arange(3, dtype=np.longdouble) / 3,
            np.arange(3, dtype=np.clongdouble),
            np.array(["2020-01-01", "NaT"], dtype="M8[us]"),
            np.array([1, 2], dtype="m8[s]"),
            np.array(["abc", "d"]),
            np.array([b"abc", b"d"]),
            np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
            np.arange(3, dtype=">f4"),
            np.float16([1.5, np.nan]),
            np.float64(2.5),
        ],
        ids=lambda array: f"{array.dtype}{array.shape}",
    )
    def test_every_type_of_elements_comes_back_exactly(self, array):
        seen = []

        def backward(state, step):
            assert type(state["x"]) is np.ndarray
            seen.append((state["x"].dtype, state["x"].shape, state["x"].tobytes(), float(state["n"])))

        def forward(state, begin, end):
            return {"x": state["x"].copy(), "n": state["n"] + (end - begin)}  # a number of NumPy, not an array

        reverse(forward, {"x": array, "n": np.array(0.0)}, backward=backward)
        assert seen == [(array.dtype, array.shape, np.asarray(array).tobytes(), float(t)) for t in range(6, -1, -1)]

    def test_a_memory_map_is_read_as_the_array_that_it_is(self, tmp_path):
        np.save(tmp_path / "x.npy", X)
        kinds = set()
        for schedule in PLANS:
            reverse(
                lambda s, a, b: kinds.add(type(s[0])) or (s[0] + 1,),
                (np.load(tmp_path / "x.npy", mmap_mode="r"),),
                7,
                schedule,
                lambda s, t: kinds.add(type(s[0])),
            )
        assert kinds == {np.ndarray}

    @pytest.mark.parametrize("record", [None, lambda s, t: s["p"], ("p",)])
    @pytest.mark.parametrize("schedule", PLANS)
    def test_what_backward_is_given_cannot_be_written_to(self, schedule, record):
        seen = []

        def backward(state, step):
            arrays = [state] if isinstance(state, np.ndarray) else list(state.values())
            seen.append(any(array.flags.writeable for array in arrays))

        def in_place(state, begin, end):
            for array in state.values():
                array += end - begin
            return state

        reverse(in_place, start(), 9, "auto" if record else schedule, backward, record=record)
        assert seen == [False] * 9


class TestTorch:
    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda torch: torch.ones(3, 3).to_sparse(), "sparse"),
            (lambda torch: torch.ones(3, 3).to_sparse_csr(), "sparse"),
            (lambda torch: torch.ones(3, dtype=torch.complex64).conj(), "resolve_conj"),
            (lambda torch: torch.ones(3, dtype=torch.complex64).conj().imag, "resolve_neg"),
            (lambda torch: torch.ones(3, device="meta"), "meta"),
            (lambda torch: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
            (lambda torch: torch.ones(1).expand(4), "on one another"),
            (lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        ],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_tensors_that_are_no_plain_arrays_are_refused(self, make, says):
        torch = pytest.importorskip("torch")
        refused((torch.zeros(2), make(torch)), rf"state\[1\].*{says}")
        with pytest.raises(StateError, match=says):
            reverse(lambda s, a, b: (s[0], make(torch)), (torch.zeros(2), torch.ones(3)))

    def test_tensors_of_other_classes_are_refused(self):
        torch = pytest.importorskip("torch")

        class Scaled(torch.Tensor):
            pass

        refused((torch.ones(3).as_subclass(Scaled),), "Scaled")

    @pytest.mark.parametrize(
        "name",
        ["float8_e4m3fn", "float8_e5m2", "bfloat16", "complex32", "uint16", "uint64", "bool", "int8", "complex128"],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_every_type_of_elements_comes_back_exactly(self, name):
        torch = pytest.importorskip("torch")
        dtype = getattr(torch, name)
        raw = torch.arange(96, dtype=torch.uint8) % 2
        initial = raw.view(dtype).reshape(2, -1).T
        seen = []

        def backward(state, step):
            seen.append((state[0].dtype, state[0].stride(), state[0].T.contiguous().view(torch.uint8).tolist()))

        reverse(lambda s, a, b: (s[0].clone(), s[1] + 1), (initial, torch.zeros(3)), backward=backward)
        assert seen == [(dtype, initial.stride(), initial.T.contiguous().view(torch.uint8).tolist())] * 7

    def test_histories_of_gradients_are_no_part_of_a_state(self):
        torch = pytest.importorskip("torch")
        weight = torch.ones(3, requires_grad=True)
        seen = []
        for schedule in PLANS:
            reverse(
                lambda s, a, b: (s[0] * weight,),
                (torch.ones(3, requires_grad=True),),
                7,
                schedule,
                lambda s, t: seen.append((s[0].requires_grad, s[0].grad_fn, type(s[0]))),
            )
        assert set(seen) == {(False, None, torch.Tensor)}

    def test_memory_that_is_shared_is_told(self):
        torch = pytest.importorskip("torch")
        x = torch.arange(8.0)
        refused((x, x[2:4]), "share memory")
        with pytest.raises(StateError, match="share memory"):
            reverse(lambda s, a, b: (s[0], s[0]), (torch.ones(3), torch.zeros(3)))

    def test_an_array_of_another_library_is_refused(self):
        torch = pytest.importorskip("torch")
        with pytest.raises(StateError, match=r"state\[0\].*torch.*NumPy"):
            reverse(lambda s, a, b: (torch.ones(3, dtype=torch.float64),), (np.ones(3),))


@dataclass
class Waves:
    p: np.ndarray
    parts: dict
    dt: float = 0.5
    name: str = "sea"
    total: np.ndarray = field(init=False)

    def __post_init__(self):
        self.total = self.p + 1


@dataclass(frozen=True, slots=True)
class Frozen:
    p: np.ndarray


@dataclass
class Scaled:
    x: np.ndarray
    by: InitVar[int]
    dt: float = float("nan")

    def __post_init__(self, by):
        self.x, self.factor = self.x * 2, by

    @cached_property
    def cached(self):
        return self.x + 1


class Items(list):
    pass


class Bad:
    def __init__(self, x):
        self.x = x


class Opaque:
    def __init__(self, values, label):
        self.values, self.label = values, label


class TestKinds:
    @pytest.mark.parametrize("schedule", PLANS)
    def test_dataclasses(self, schedule):
        seen = []

        def forward(state, begin, end):
            for _ in range(begin, end):
                state = Waves(state.p + state.dt, {"v": state.parts["v"] * 2, "w": Frozen(state.parts["w"].p - 1)})
                state.total = state.total + 1
            return state

        def backward(state, step):
            assert (type(state), type(state.parts["w"]), state.name) == (Waves, Frozen, "sea")
            seen.append((state.p[0], state.parts["v"][0], state.parts["w"].p[0], state.total[0]))

        initial = Waves(np.zeros(3), {"w": Frozen(np.zeros(2)), "v": np.ones(4)})
        reverse(forward, initial, 6, schedule, backward)
        expected = [(0.5 * t, 2.0**t, -t, 0.5 * t + (2 if t else 1)) for t in range(6)]
        assert seen == expected[::-1]

    def test_fields_of_a_dataclass_that_are_no_arrays_stay_as_they_are(self):
        with pytest.raises(StateError, match=r"dt=0\.25.*dt=0\.5"):
            reverse(lambda s, a, b: Waves(s.p, s.parts, dt=s.dt / 2), Waves(np.zeros(3), {"v": np.ones(3)}))

    def test_a_dataclass_comes_back_without_its_constructor(self):
        seen = []
        initial = Scaled(np.ones(3), 5)
        initial.note, initial.cached = "mine", np.zeros(1)
        reverse(
            lambda s, a, b: (setattr(s, "x", s.x + s.factor * (b - a)), s)[1],
            initial,
            backward=lambda s, t: seen.append((s.x[0], s.factor, s.note, s.dt != s.dt, "cached" in vars(s))),
        )
        assert seen == [(2 + 5.0 * t, 5, "mine", True, False) for t in range(6, -1, -1)]
        again = Scaled(np.ones(3), 5)
        again.dt = -float("nan")  # no number is the same as another
        reverse(lambda s, a, b: (setattr(s, "dt", float("nan")), s)[1], again)

    @pytest.mark.parametrize(("before", "after"), [(0.0, -0.0), (2, 2.0), (1, True), (0j, -0j)])
    def test_plain_values_are_the_same_where_their_bits_are(self, before, after):
        for name in ("dt", "note"):  # a field, and none
            initial = Scaled(np.ones(3), 5)
            setattr(initial, name, before)
            with pytest.raises(StateError, match=f"{name}=.*{name}="):
                reverse(lambda s, a, b, name=name: (setattr(s, name, after), s)[1], initial)

    def test_attributes_that_would_be_lost_are_refused(self):
        initial = Scaled(np.ones(3), 5)
        initial.table = np.zeros(3)
        refused(initial, "table.*Scaled.*neither a field")
        items = Items([np.ones(3)])
        items.unit = "m"
        refused(items, "unit.*Items.*register_state")

    def test_attributes_of_a_dataclass_can_be_records(self):
        seen = []
        reverse(
            lambda s, a, b: Frozen(s.p + (b - a)),
            Frozen(np.zeros(3)),
            schedule="auto",
            record="p",
            backward=lambda r, t: seen.append(r["p"][0]),
        )
        assert seen == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]

    def test_any_class_can_be_registered(self):
        refused(Opaque(np.zeros(3), "a"), r"Opaque.*register_state")
        fb.register_state(Opaque, lambda s: ((s.values,), s.label), lambda label, arrays: Opaque(*arrays, label))
        seen = []
        reverse(
            lambda s, a, b: {"s": Opaque(s["s"].values + (b - a), s["s"].label)},
            {"s": Opaque(np.zeros(3), "a")},
            backward=lambda s, t: seen.append((s["s"].values[0], s["s"].label)),
        )
        assert seen == [(float(t), "a") for t in range(6, -1, -1)]
        with pytest.raises(StateError, match="Opaque"):
            reverse(lambda s, a, b: Opaque(s.values, "b"), Opaque(np.zeros(3), "a"))
        fb.register_state(Opaque, lambda s: ((s.values,), s.label), lambda label, arrays: Opaque(*arrays, label))
        with pytest.raises(StateError, match="dict"):
            fb.register_state(dict, lambda s: ((), None), lambda rest, arrays: {})

    def test_what_is_beside_the_arrays_of_a_registered_class_cannot_be_changed_in_place(self):
        class Sea:
            def __init__(self, x, about):
                self.x, self.about = x, about

        fb.register_state(Sea, lambda s: ((s.x,), s.about), lambda about, arrays: Sea(*arrays, about))

        def forward(sea, begin, end):
            sea.about["n"] += 1
            return sea

        about = {"n": 0}
        with pytest.raises(StateError, match=r"'n': 1.*'n': 0"):
            reverse(forward, Sea(np.ones(3), about))
        assert about == {"n": 0}  # the caller's

    @pytest.mark.parametrize(
        ("flatten", "unflatten", "words"),
        [
            (lambda s: ((s.x,), None), lambda rest, arrays: 1 / 0, "unflatten of Bad raised ZeroDivisionError"),
            (lambda s: s.x, lambda rest, arrays: Bad(arrays), "flatten of Bad has to return"),
            (lambda s: (s.x, None), lambda rest, arrays: Bad(arrays), "flatten of Bad has to return"),
            (lambda s: ((s.x,), np.arange(3)), lambda rest, arrays: Bad(*arrays), "Bad is an array"),
            (lambda s: ((s.x,), {"n": np.arange(3)}), lambda rest, arrays: Bad(*arrays), "Bad cannot be compared"),
        ],
    )
    def test_functions_of_a_registered_class_that_go_wrong_are_told_with_its_name(self, flatten, unflatten, words):
        fb.register_state(Bad, flatten, unflatten)
        refused(Bad(np.ones(3)), words)

    def test_masked_arrays_can_be_registered(self):
        masked = np.ma.MaskedArray
        from forebay.engine import trees

        fb.register_state(
            masked,
            lambda m: ((m.data, np.ma.getmaskarray(m)), None),
            lambda _, parts: np.ma.array(parts[0], mask=parts[1]),
        )
        try:
            seen = []
            reverse(
                lambda s, a, b: (s[0] + (b - a),),
                (np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),),
                backward=lambda s, t: seen.append((type(s[0]), s[0].sum())),
            )
            assert seen == [(masked, 4.0 + 2 * t) for t in range(6, -1, -1)]
        finally:
            trees.optree.unregister_pytree_node(masked, namespace=trees.NAMESPACE)
            trees._registered.discard(masked)

    @pytest.mark.parametrize("schedule", PLANS)
    def test_jax_arrays_on_the_host(self, schedule):
        jax = pytest.importorskip("jax")
        jnp = jax.numpy
        kept, seen = [], {}

        @jax.jit
        def step(state):
            return {"u": state["u"] * 0.5 + state["n"], "n": state["n"] + 1}

        def forward(state, begin, end):
            for _ in range(begin, end):
                state = step(state)
            return state

        def backward(state, step):
            assert all(isinstance(leaf, jax.Array) for leaf in state.values())
            kept.append(state)
            seen[step] = np.asarray(state["u"]).tobytes()

        initial = {"u": jnp.arange(5, dtype=jnp.bfloat16), "n": jnp.zeros((), jnp.int32)}
        reverse(forward, initial, 9, schedule, backward)
        state = initial
        for number in range(9):
            assert seen[number] == np.asarray(state["u"]).tobytes()
            assert np.asarray(kept[8 - number]["u"]).tobytes() == seen[number]  # nobody writes into it later
            state = step(state)

    def test_arrays_of_jax_that_cannot_be_kept_are_refused(self):
        jax = pytest.importorskip("jax")
        refused((jax.random.key(0),), "key_data")
        refused((jax.numpy.asarray(1.0),), "weak")

        def traced(x):
            refused((x,), "traced")
            return x

        jax.jit(traced)(jax.numpy.ones(3))

    @pytest.mark.parametrize("schedule", PLANS)
    def test_datasets_of_xarray(self, schedule):
        xarray = pytest.importorskip("xarray")
        seen = {}
        initial = xarray.Dataset(
            {"u": (("y", "x"), np.arange(6.0).reshape(2, 3)), "v": ("x", np.ones(3))},
            coords={"x": [10, 20, 30], "time": np.datetime64("2020-01-01", "ns")},
            attrs={"title": "sea"},
        )

        def forward(state, begin, end):
            for _ in range(begin, end):
                new = xarray.Dataset({"v": state.v * 0.5, "u": state.u + state.v})
                state = new.assign_coords(time=state.time + np.timedelta64(1, "D"))
            return state

        def backward(state, step):
            assert not state.u.values.flags.writeable
            seen[step] = state.copy(deep=True)

        reverse(forward, initial, 6, schedule, backward)
        state = initial
        for step in range(6):
            xarray.testing.assert_equal(seen[step], state)
            assert list(seen[step].data_vars) == ["u", "v"] and seen[step].attrs == {"title": "sea"}
            state = forward(state, step, step + 1)
        with pytest.raises(StateError, match="Dataset"):
            reverse(lambda s, a, b: s.isel(x=[0, 2, 1]), initial)
        with pytest.raises(StateError, match="Dataset"):
            reverse(lambda s, a, b: s.rename(u="w"), initial)

    def test_data_arrays_of_xarray(self):
        xarray = pytest.importorskip("xarray")
        seen = []
        initial = xarray.DataArray(np.zeros((2, 3)), dims=("y", "x"), coords={"x": [1, 2, 3]}, name="u")
        reverse(
            lambda s, a, b: {"u": s["u"] + (b - a)},
            {"u": initial},
            backward=lambda s, t: seen.append((float(s["u"].sel(x=2)[0]), s["u"].name)),
        )
        assert seen == [(float(t), "u") for t in range(6, -1, -1)]
        with pytest.raises(StateError, match=r"state\['u'\]"):
            reverse(lambda s, a, b: {"u": s["u"].T}, {"u": initial})


def test_results_and_plans_print_in_a_few_lines():
    small = reverse(returning(lambda s: s), start(), 10)
    large = reverse(returning(lambda s: s), start(), 4000, budget="64kB", schedule="auto")
    for printed in (small, large, small.plan, large.plan, large.metrics):
        for text in (repr(printed), str(printed)):
            assert len(text) < 500
    for shown in (small, large, small.plan, large.plan):  # a notebook keeps what each cell showed
        assert len(shown._repr_html_()) < 100_000
    assert "4000 steps" in repr(large) and "4000 steps" in repr(large.plan) and str(large.plan.schedule) in repr(large)
    assert len({repr(small), repr(large)}) == 2


def test_what_is_moved_to_time_links_is_within_the_budget(tmp_path, monkeypatch):
    import mmap
    from types import SimpleNamespace

    taken = []

    def pages(number, size):
        taken.append(size)
        return mmap.mmap(number, size)

    monkeypatch.setattr("forebay.engine.timing.measure.mmap", SimpleNamespace(mmap=pages))
    fb.reverse(
        lambda s, a, b: {"u": s["u"] + 1, "n": s["n"] + 1},
        lambda record, step: None,
        {"u": np.zeros(10**6), "n": np.zeros(500)},
        5,
        budget=fb.Budget(host="200kB", disk="1MB"),
        record=("n",),
        directory=tmp_path,
    )
    assert 0 < sum(taken) <= 200_000
