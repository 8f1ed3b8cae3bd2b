from types import SimpleNamespace

import numpy as np
import pytest

from forebay.cuda.arrays import View, view


def array(shape, typestr="<f4", strides=None, pointer=4096):
    interface = {"shape": shape, "typestr": typestr, "data": (pointer, False), "strides": strides, "version": 3}
    return SimpleNamespace(__cuda_array_interface__=interface)


def test_a_contiguous_array():
    assert view(array((3, 4))) == View(4096, (3, 4), np.dtype("float32"), 48, True)


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((3, 4), (16, 4), True),
        ((3, 4), (4, 12), False),  # Fortran order
        ((3, 4), (32, 4), False),  # gaps between rows
        ((3, 4), (16, -4), False),
        ((1, 4), (999, 4), True),
        ((0, 4), (1, 1), True),
        ((), (), True),
    ],
)
def test_contiguity(shape, strides, contiguous):
    assert view(array(shape, strides=strides)).contiguous is contiguous


def test_bytes_are_those_of_the_elements():
    assert view(array((3, 4), strides=(32, 4))).nbytes == 48
    assert view(array((), typestr="<f8")).nbytes == 8
    assert view(array((5,), typestr="<V2")).nbytes == 10  # how bfloat16 comes
    assert view(array((0,), pointer=None)) == View(0, (0,), np.dtype("float32"), 0, True)


def test_an_array_of_the_host_is_refused():
    with pytest.raises(TypeError, match=r"numpy\.ndarray is not an array on a GPU"):
        view(np.zeros(3))


def test_a_view_is_an_array_again():
    there = View.at(4096, (2, 3), "int16")
    assert view(there) == there
    with pytest.raises(TypeError):
        view(view(array((3, 4), strides=(32, 4))))


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_real_libraries(library):
    module = pytest.importorskip(library)
    if library == "cupy":
        made = module.arange(12, dtype="float32").reshape(3, 4)
        again = module.asarray(View.at(made.data.ptr, (12,), "float32"))
    else:
        made = module.arange(12, dtype=module.float32, device="cuda").reshape(3, 4)
        again = module.as_tensor(View.at(made.data_ptr(), (12,), "float32"), device="cuda")
    seen = view(made)
    assert (seen.shape, seen.dtype, seen.nbytes, seen.contiguous) == ((3, 4), np.dtype("float32"), 48, True)
    assert not view(made[:, ::2]).contiguous
    made[0, 0] = 7
    assert float(again[0]) == 7
