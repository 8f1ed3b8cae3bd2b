import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cuda.core")

from forebay.cuda import cubins, kernels
from forebay.cuda.arrays import View
from forebay.cuda.copy import copy_async
from forebay.cuda.kernels import compile_only, load
from forebay.cuda.slab import DeviceSlab, PinnedSlab
from forebay.cuda.stream import callers_streams
from forebay.errors import DeviceError

PROBE = Path(__file__).parent / "probe.cu"
MAILBOX = Path(kernels.__file__).parent / "mailbox.cu"


@pytest.fixture
def nvrtc():
    try:
        compile_only(PROBE)
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("source", [PROBE, MAILBOX], ids=lambda path: path.name)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_compiling_needs_no_gpu(source, arch):
    assert compile_only(source, arch).startswith(b"\x7fELF")


@pytest.mark.usefixtures("nvrtc")
def test_options_reach_the_compiler():
    plain = compile_only(PROBE)
    assert compile_only(PROBE) == plain
    assert compile_only(PROBE, fmad=False) != plain
    assert compile_only(PROBE, defines={"FACTOR": "2.0f"}) != plain


@pytest.mark.usefixtures("nvrtc")
def test_a_header_beside_the_source_is_found(tmp_path):
    (tmp_path / "one.cuh").write_text("#define ONE 1\n")
    source = tmp_path / "uses.cu"
    source.write_text('#include "one.cuh"\nextern "C" __global__ void k(int *x) { *x = ONE; }\n')
    assert compile_only(source)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Lend a source with a header, and an empty place for what is compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "one.cuh").write_text("#define ONE 1\n")
    (tmp_path / "uses.cu").write_text('#include "one.cuh"\nextern "C" __global__ void k(int *x) { *x = ONE; }\n')
    return tmp_path / "uses.cu"


@pytest.fixture
def compilations(monkeypatch):
    """Count how often NVRTC is called."""
    made = []
    compile_ = kernels._compile
    monkeypatch.setattr(kernels, "_compile", lambda *args: made.append(args) or compile_(*args))
    return made


@pytest.mark.usefixtures("nvrtc")
def test_what_was_compiled_is_kept_for_others(kept, compilations):
    code = kernels.cubin(kept, "sm_90", True, ())
    assert kernels.cubin(kept, "sm_90", True, ()) == code == compile_only(kept) and len(compilations) == 2
    (file,) = cubins.folder().iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    for changed in ("sm_80", True, ()), ("sm_90", False, ()), ("sm_90", True, (("TWO", "2"),)):
        kernels.cubin(kept, *changed)
    assert len(compilations) == 5
    kept.with_name("one.cuh").write_text("#define ONE 3\n")
    assert kernels.cubin(kept, "sm_90", True, ()) != code and len(compilations) == 6


@pytest.mark.usefixtures("nvrtc")
def test_what_was_kept_and_is_damaged_is_compiled_again(kept, compilations):
    code = kernels.cubin(kept, "sm_90", True, ())
    (file,) = cubins.folder().iterdir()
    for damage in (lambda data: data[:-1], lambda data: data[:100] + b"x" + data[101:], lambda data: b""):
        file.write_bytes(damage(file.read_bytes()))
        assert kernels.cubin(kept, "sm_90", True, ()) == code
    assert len(compilations) == 4


def test_code_is_neither_taken_from_nor_put_where_others_can_write(kept):
    cubins.write("name", b"code")
    assert cubins.read("name") == b"code"
    cubins.folder().chmod(0o777)
    cubins.write("other", b"code")
    assert cubins.read("name") is None and not (cubins.folder() / "other").exists()


def test_without_a_home_nothing_is_kept(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cubins.Path, "home", nowhere)
    cubins.write("name", b"code")
    assert cubins.read("name") is None


def test_what_was_kept_where_nothing_can_be_written_is_read(kept, monkeypatch):
    def refuse(path):
        raise OSError("Read-only file system")

    cubins.write("name", b"code")
    monkeypatch.setattr(cubins.os, "utime", refuse)
    assert cubins.read("name") == b"code"


def test_what_was_not_used_for_longest_goes_first(kept, monkeypatch):
    monkeypatch.setattr(cubins, "MOST_FILES", 2)
    for number, name in enumerate(("a", "b", "c")):
        cubins.write(name, b"code")
        os.utime(cubins.folder() / name, (number, number))
        assert cubins.read("a") == b"code"
    assert cubins.read("b") is None and cubins.read("c") == b"code"


@pytest.mark.usefixtures("nvrtc")
def test_an_error_in_a_source_names_the_file_and_the_line(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void k() {\n  nonsense;\n}\n')
    with pytest.raises(Exception, match=r"broken\.cu\(2\)"):
        compile_only(source)


def bits(value, width):
    """Return what stands in the place of an argument, after another that was there before."""
    slots = kernels.Slots("k", (width, 4))
    for written in (2**7, value):
        slots.fill((written, 0))
    where = int(np.ctypeslib.as_array((ctypes.c_uint64 * 2).from_address(slots.pointers))[0])
    return ctypes.string_at(where, 8)


@pytest.mark.parametrize(
    ("value", "width", "dtype"),
    [
        *((1, 4, "i4"), (2**32 - 1, 4, "u4"), (-1, 8, "i8"), (-3, 4, "i4"), (2**64 - 1, 8, "u8"), (True, 1, "i1")),
        *((0.1, 4, "f4"), (0.1, 8, "f8"), (np.inf, 4, "f4"), (np.float32(0.1), 4, "f4"), (np.int16(-2), 2, "i2")),
    ],
)
def test_numbers_take_the_width_that_the_kernel_reads(value, width, dtype):
    assert bits(value, width) == np.array(value, dtype).tobytes() + bytes(8 - width)


def test_arrays_are_given_as_addresses():
    assert bits(View.at(4096, (3,), "float32"), 8) == np.array([4096]).tobytes()


def test_numbers_of_another_width_are_refused():
    with pytest.raises(TypeError, match="kernel k reads 4 bytes where a float64 was given"):
        bits(np.float64(2), 4)
    with pytest.raises(TypeError, match="gaps"):
        bits(View(4096, (3,), np.dtype("float32"), 12, contiguous=False), 8)
    for value, width in (2**40, 4), (-(2**31) - 1, 4), (2**64, 8), (-129, 1):
        with pytest.raises(OverflowError, match="cannot hold"):
            bits(value, width)
    with pytest.raises(TypeError, match="takes 2 arguments; 1 were given"):
        kernels.Slots("k", (4, 4)).fill((1,))


@pytest.mark.gpu
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_kernel_computes_what_numpy_does(streams, factor):
    n = 100_003
    module = load(PROBE, fmad=False, defines={"FACTOR": f"{factor}f"})
    x, y = np.random.default_rng(1).standard_normal((2, n), dtype=np.float32)
    with DeviceSlab(8 * n) as device, PinnedSlab(8 * n) as host:
        host.array[: 4 * n] = x.view(np.uint8)
        host.array[4 * n :] = y.view(np.uint8)
        copy_async(device.pointer, host.pointer, 8 * n, streams.compute)
        on_device = [View.at(device.pointer + offset, (n,), "float32") for offset in (4 * n, 0)]
        module.launch("scale", -(-n // 256), 256, (*on_device, 0.1, 0.25, n), streams.compute)
        copy_async(host.pointer, device.pointer + 4 * n, 4 * n, streams.compute)
        streams.compute.sync()
        result = host.array[: 4 * n].view(np.float32).copy()
    expected = np.float32(factor) * (np.float32(0.1) * x + y) + np.float32(0.25)
    assert np.array_equal(result, expected)


@pytest.mark.gpu
def test_a_source_is_compiled_once():
    assert load(PROBE) is load(PROBE)
    assert load(PROBE, defines={"FACTOR": "2.0f"}) is not load(PROBE)
    assert load(PROBE, fmad=False) is not load(PROBE)


@pytest.mark.gpu
def test_a_wrong_number_of_arguments_is_refused(streams, probe):
    with pytest.raises(TypeError, match="kernel spin takes 1 arguments; 2 were given"):
        probe.launch("spin", 1, 1, (1, 2), streams.compute)


@pytest.mark.gpu
def test_arrays_of_cupy_are_arguments(streams, probe):
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros(1000, dtype=cupy.uint8)
    for stream in callers_streams():
        streams.compute.wait(stream)
    probe.launch("fill", 4, 256, (x, 6, 1000), streams.compute)
    streams.compute.sync()
    assert bool((x == 6).all())
