"""What one iteration tells of a block: a log of what was seen, and the frozen facts that it comes to."""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from forebay.torch.gauge import HostGauge
from forebay.torch.replay.costly_operations import CostlyOperations

Signature = tuple[Any, ...]


def signature(tensors: list[torch.Tensor]) -> Signature:
    """Return what a plan depends on: shapes, types, and whether gradients are wanted."""
    return tuple([(tensor.shape, tensor.dtype, tensor.requires_grad, tensor.device) for tensor in tensors])


Span = tuple[Any, Any]
"""Two moments."""

Log = defaultdict[str, list[Any]]
"""What was seen of one call of a block, by what it is:

- spans of "forward", "backward", "replay" (one for each run after the first), of its "tail" behind all that is needed,
  of "encode" and "decode";
- "operations": costly ones whose outputs are worth keeping: number, bytes, those of them in small storages, and span;
- "given": storage, bytes, and whether these stay where they are, of each input;
- "saved": bytes of each storage that it saves but for parameters, inputs and outputs; of these what is too small to
  move; and those of its encoding;
- "room": bytes that an encoder needs on the device for a moment;
- "small", "outputs": numbers of saved tensors that are parameters or too small to move, and that are its output;
- "made": storage and bytes of each output that it saved;
- "peak forward", "peak after", "peak backward": bytes of the device;
- "follows": that it follows the block before, as such a block does.
"""


@dataclass(frozen=True, eq=False)
class BlockRecord:
    """One call of a block in one iteration."""

    name: str
    module: int
    """the identity of the module, or of those that it is made of"""
    signature: Signature
    """of what it was given"""
    count: int = 1
    """the blocks of the model that it is made of"""
    log: Log = field(default_factory=lambda: defaultdict(list))


class BlockBytes(NamedTuple):
    """What a block takes."""

    saved: int = 0
    """but for parameters, inputs and outputs"""
    stays: int = 0
    """of what is saved, in storages smaller than what is moved"""
    encoded: int = 0
    """of the encodings of those that the codec takes, and of the others as they are"""
    inputs: int = 0
    """of tensors that no block before was given"""
    movable: int = 0
    """those of them that no other block is given: but for small ones, and a batch that the caller holds"""
    loose: int = 0
    """of outputs that it saved and that no later block is given: they stay for this one alone"""
    room: int = 0
    """that an encoder needs on the device for a moment, at most"""
    peaks: tuple[int, int, int] = 0, 0, 0
    """on the device, in its forward, after it and in its backward"""


class BlockTimes(NamedTuple):
    """Seconds of a block."""

    forward: float = 0.0
    backward: float = 0.0
    encode: float = 0.0
    """all that it saves"""
    decode: float = 0.0
    replay: float = 0.0
    """of second runs"""
    replay_of_rest: float = 0.0
    """of second runs where outputs of costly operations are kept"""

    def at_pace(self, factor: float) -> "BlockTimes":
        """Return all of it slower or faster."""
        return BlockTimes(*(factor * seconds for seconds in self))


_NO_BYTES, _NO_TIMES, _NONE_COSTLY = BlockBytes(), BlockTimes(), CostlyOperations()


@dataclass(frozen=True)
class MeasuredBlock:
    """What an iteration that looked into a block has told of it."""

    name: str
    module: int
    signature: Signature
    count: int = 1
    bytes: BlockBytes = _NO_BYTES
    times: BlockTimes = _NO_TIMES
    needed: bool = True
    """whether the loss needed it"""
    follows: bool = False
    """whether an `nn.Sequential` gave it what the block before gave, and nothing of others is around both"""
    refused: bool = False
    """whether it cannot be run again as it was, so that it is kept"""
    outputs: frozenset[int] = frozenset()
    """the numbers of saved tensors that are its output: after these there is nothing to leave out of a second run"""
    small: frozenset[int] = frozenset()
    """the numbers of those that are parameters, or smaller than what is moved"""
    costly: CostlyOperations = _NONE_COSTLY


def total_seconds(gauge: HostGauge, spans: Iterable[Span]) -> float:
    """Add up the seconds of some spans."""
    return sum(gauge.seconds(*span) for span in spans)


def measured_blocks(
    records: Sequence[BlockRecord], refused: Container[int], gauge: HostGauge
) -> tuple[MeasuredBlock, ...]:
    """Read the logs of an iteration that has ended."""
    return tuple(
        MeasuredBlock(
            record.name,
            record.module,
            record.signature,
            record.count,
            _bytes(number, records),
            _times(record.log, gauge),
            needed=bool(record.log["backward"]),
            follows=bool(record.log["follows"]),
            refused=record.module in refused,
            outputs=frozenset(record.log["outputs"]),
            small=frozenset(record.log["small"]),
            costly=_costly(record.log),
        )
        for number, record in enumerate(records)
    )


def _bytes(number: int, records: Sequence[BlockRecord]) -> BlockBytes:
    """Add up what a block takes, beside those before and after it."""
    log = records[number].log
    given = [{storage for storage, *_ in record.log["given"]} for record in records]
    before, later = set().union(*given[:number]), set().union(*given[number + 1 :])
    new = [(nbytes, stays) for storage, nbytes, stays in log["given"] if storage not in before]
    alone = given[number].isdisjoint(before | later)  # moving it for one would not free it
    saved, stays, encoded = (sum(nbytes) for nbytes in zip((0, 0, 0), *log["saved"], strict=True))
    forward, after, backward = (max(log[f"peak {when}"], default=0) for when in ("forward", "after", "backward"))
    return BlockBytes(
        saved,
        stays,
        encoded,
        inputs=sum(nbytes for nbytes, _ in new),
        movable=sum(nbytes for nbytes, stays in new if alone and not stays),
        loose=sum(nbytes for storage, nbytes in log["made"] if storage.cdata not in later),
        room=max(log["room"], default=0),
        peaks=(forward, after, backward),
    )


def _costly(log: Log) -> CostlyOperations:
    """Sum up the costly operations whose outputs may be kept."""
    operations = log["operations"]
    nbytes, stays = (sum(operation[place] for operation in operations) for place in (1, 2))
    return CostlyOperations(frozenset(number for number, *_ in operations), nbytes, stays)


def _times(log: Log, gauge: HostGauge) -> BlockTimes:
    """Add up the seconds of a block forward and backward, of its encoding, and of each kind of second run."""
    encode, decode, forward = (total_seconds(gauge, log[what]) for what in ("encode", "decode", "forward"))
    if not log["backward"]:
        return BlockTimes(forward)
    replays = [gauge.seconds(*span) for span in log["replay"]]
    backward = max(total_seconds(gauge, log["backward"]) - sum(replays), 0.2 * forward)
    # The first run of all also chose and loaded its kernels; and watching operations one by one slows the second run
    # down, so that only the share of those that run again is taken from it.
    aside = encode + decode + total_seconds(gauge, log["tail"])
    first = min(forward, (sum(replays) - aside) / len(replays)) if replays else forward
    watched = replays[0] - aside if replays else 0.0
    runs = first * max(len(replays), 1)
    left_out = total_seconds(gauge, (span for *_, span in log["operations"]))
    rest = max(1 - left_out / watched if watched > 0 else 1.0, 0.02) * runs
    return BlockTimes(first, backward, encode, decode, runs, rest)
