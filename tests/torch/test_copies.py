"""Copies of a block's buffers: of all types, side by side in one piece of memory, and never mistaken for others."""

import pytest

torch = pytest.importorskip("torch")

from tests.torch.models import AMPLE, MLP, equal, pair, step  # noqa: E402
from torch import nn  # noqa: E402

from penstock.torch import fit  # noqa: E402
from penstock.torch.belongings import Belongings  # noqa: E402
from penstock.torch.copies import Pack, copied, packs_of  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KINDS = {
    (0, "flags"): torch.tensor([True, False, True]),
    (0, "count"): torch.tensor(5),
    (0, "half"): torch.arange(7, dtype=torch.bfloat16),
    (1, "waves"): torch.randn(3, 2, dtype=torch.complex64),
    (1, "none"): torch.zeros(0, 4),
    (2, "table"): torch.randn(5, 3, dtype=torch.float64),
}


@pytest.mark.parametrize("device", DEVICES)
def test_buffers_of_all_types_are_copied_together(device):
    buffers = {place: one.to(device) for place, one in KINDS.items()}
    (pack,) = packs_of(buffers)
    assert pack.places == set(buffers)
    copy = pack.copy()
    found = pack.buffers(copy)
    for place, one in buffers.items():
        assert found[place].dtype == one.dtype and found[place].stride() == one.stride()
        assert torch.equal(found[place], one)
        assert not one.numel() or (found[place].data_ptr() - copy.data_ptr()) % 512 == 0


def test_who_changes_one_of_the_copies_changes_no_other_nor_counts_for_it():
    pack = Pack(KINDS)
    one, other = pack.buffers(pack.copy()), pack.buffers(pack.copy())
    before = {place: buffer._version for place, buffer in one.items()}
    for buffer in one.values():
        buffer.zero_()
    assert all(torch.equal(other[place], buffer) for place, buffer in KINDS.items())
    assert all(buffer._version == before[place] + 1 for place, buffer in one.items())
    one[0, "half"].mul_(torch.ones(7, requires_grad=True).bfloat16())  # as a block may do with a buffer of its own
    assert one[0, "half"].requires_grad and not one[2, "table"].requires_grad


def test_what_shares_memory_or_is_large_or_not_plain_is_in_no_pack():
    shared = torch.randn(10)
    sparse = torch.eye(3).to_sparse()
    buffers = {
        (0, "left"): shared[:5],
        (0, "right"): shared[5:],
        (0, "large"): torch.zeros(10**6),
        (0, "turned"): torch.randn(3, 4).T,
        (0, "sparse"): sparse,
        (0, "plain"): torch.randn(4),
    }
    assert [pack.places for pack in packs_of(buffers)] == [{(0, "plain")}]
    copies = copied({place: one for place, one in buffers.items() if place != (0, "plain")})
    assert copies[0, "turned"].stride() == (1, 4) and copies[0, "sparse"].layout is sparse.layout
    copies[0, "left"].zero_()
    assert copies[0, "left"].untyped_storage()._cdata == copies[0, "right"].untyped_storage()._cdata
    assert torch.equal(copies[0, "right"], shared[5:]) and shared[:5].any()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))


def replaced(module):
    module.mean = torch.ones(4)


def moved(module):
    module.mean.data = torch.ones(4)


def resized(module):
    module.mean.resize_(2).fill_(1)


def added(module):
    module.register_buffer("more", torch.ones(4))


@pytest.mark.parametrize("change", [replaced, moved, resized, added])
def test_a_block_whose_buffers_are_others_is_noted_anew(change):
    module = Counting()
    belongings = Belongings(module)
    before = belongings.note()
    module.mean.add_(2)
    assert torch.equal(belongings.note().copies()[0, "mean"], torch.full((4,), 2.0))
    assert torch.equal(before.copies()[0, "mean"], torch.zeros(4))
    change(module)
    copies = belongings.note().copies()
    assert {name for _, name in copies} == set(module._buffers)
    assert all(torch.equal(copies[0, name], buffer) for name, buffer in module._buffers.items())


class Remembering(MLP):
    """Reads and changes buffers of several types, one of them by a value that wants gradients."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("scale", torch.ones(8, dtype=torch.bfloat16))

    def forward(self, x):
        self.count.add_(1)
        self.scale = (self.scale * 1.5).detach()
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.5)
        return super().forward(x * self.scale.to(x.dtype) + self.mean * self.count)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("choice", ["recompute", "keep dear, recompute the rest", None])
def test_blocks_that_read_what_they_change_train_as_plain_ones(choice, device):
    plain, model = (one.to(device) for one in pair(Remembering))
    fit(model, AMPLE, choice=choice)
    x = torch.randn(5, 8, device=device)
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))
