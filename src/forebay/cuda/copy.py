"""Moving bytes between device and host, in the order of a stream."""

from cuda.bindings import driver
from cuda.core import Stream

from forebay.cuda.driver import checked
from forebay.units import to_text


def copy_async(dst_pointer: int, src_pointer: int, nbytes: int, stream: Stream) -> None:
    """Enqueue a copy on a stream: device to device, up, or down, whichever the two addresses say.

    The call returns before the copy is done where the host's side is pinned (`forebay.cuda.slab.PinnedSlab`); with
    pageable host memory it is correct but slow, and may hold the caller up. Both sides must stay alive and unchanged
    until an event recorded after it on `stream` has passed.

    Parameters
    ----------
    dst_pointer, src_pointer : int
        Addresses on the device or the host.
    nbytes : int
        How many bytes; the two ranges must not overlap.
    stream : cuda.core.Stream
        The stream whose order the copy keeps.
    """
    if nbytes == 0:  # the driver would refuse the address 0 that empty arrays have
        return
    result = driver.cuMemcpyAsync(dst_pointer, src_pointer, nbytes, stream.handle)
    if result[0] != driver.CUresult.CUDA_SUCCESS:  # the text takes longer to write than the copy to enqueue
        checked(result, f"copying {to_text(nbytes)}")
