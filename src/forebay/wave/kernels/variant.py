"""How stencils are cut into thread blocks on a GPU: the choices that change speed and no bit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """How the stencils are compiled and launched; every variant gives the same bits."""

    block: tuple[int, int] = (32, 8)
    """threads of a thread block, along rows and across them"""
    blocks: int = 2
    """thread blocks that a multiprocessor shall have room for"""
    early: bool = True
    """whether planes are loaded one ahead into registers"""
    ahead: int = 0
    """planes by which the second-level cache is filled ahead"""
    fixed_extents: bool = True
    """whether the compiler knows the extents of the fields: shorter code, compiled for each shape"""
    chunks: int = 0
    """parts of the first axis; 0 leaves the choice to `chunk_of`"""

    def defines(self, axes: int, radius: int, rows: int, words: int) -> dict[str, int]:
        """Return the macros for the source."""
        extents = {"ROWS": rows, "WORDS": words} if self.fixed_extents else {}
        return {
            "AXES": axes,
            "RADIUS": radius,
            "BLOCK_X": self.block[0],
            "BLOCK_Y": self.block[1],
            "BLOCKS": self.blocks,
            "EARLY": int(self.early),
            "AHEAD": self.ahead,
            **extents,
        }


def chunk_of(axes: int, columns: tuple[int, int], planes: int, slots: int, variant: Variant) -> int:
    """Choose how many planes a thread marches through.

    Thread blocks come in waves of as many as there are slots, and a wave lasts as long as a march. Each march begins
    with loads that another one makes too, which cost about as much as a few planes.

    Examples
    --------
    >>> chunk_of(3, (4, 64), 512, 264, Variant())  # all thread blocks at once
    512
    >>> chunk_of(3, (6, 85), 310, 264, Variant())  # 510 columns for 264 slots
    310
    """
    together = variant.block[1] if axes == 2 else 1
    lost, shortest = 4, 4

    def seconds(parts: int) -> int:
        waves = -(-columns[0] * columns[1] * parts // (slots * together))
        return waves * (-(-planes // parts) + lost)

    if variant.chunks:
        return -(-planes // variant.chunks)
    return -(-planes // min(range(1, max(1, planes // shortest) + 1), key=seconds))
