"""Every door that takes values: scalars, lists, strided, read-only, byte-swapped arrays and torch tensors are one."""

import subprocess
import sys

import numpy as np
import pytest

import sgsdump
from sgsdump import Dump, Record, Tensor, TensorInfo
from sgsdump.errors import ValuesError
from sgsdump.tensors.dtypes import as_array

BASE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) + 1


def read_only():
    array = BASE.copy()
    array.flags.writeable = False
    return array


class ArrayLike:
    def __array__(self, dtype=None, copy=None):
        return BASE.astype(dtype or np.float32)


FORMS = {
    "scalar": np.float32(3),
    "scalar of another type": np.int16(3),
    "number": 3.0,
    "0-d": np.array(3, np.float32),
    "list": [[1.0, 2.0], [3.0, 4.0]],
    "strided": BASE[:, ::2],
    "transposed": BASE.T,
    "backwards": BASE[::-1],
    "read-only": read_only(),
    "byte-swapped": BASE.astype(BASE.dtype.newbyteorder()),
    "matrix": np.asmatrix([[1.0, 2.0]]),
    "array-like": ArrayLike(),
    "memory": memoryview(BASE),
}


def dump_of(tensor):
    return Dump([Record("out", 0, 0, "Conv", tensor)])


def check(values, plain, folder):
    """By ``Tensor.of``, a loader, ``compare`` and ``save_dump``: the values that numpy sees."""
    expected = np.asarray(plain, np.float64)
    tensors = Tensor.of("x", values), Tensor(TensorInfo("x", plain.shape, plain.dtype), lambda: values)
    other = (expected + 1).astype(plain.dtype)
    for tensor in tensors:
        assert tensor.shape == plain.shape and np.array_equal(tensor.real(), expected)
        row = sgsdump.compare(dump_of(tensor), dump_of(Tensor.of("x", other)))["x"]
        assert (row.mse, row.count) == (1.0, plain.size)
        sgsdump.save_dump([tensor], folder / "one.npz")
        sgsdump.save_dump({"x": values}, folder / "two.npz")
        for file in ("one.npz", "two.npz"):
            assert np.array_equal(sgsdump.open_dump(folder / file)["x"].real(), expected)


@pytest.mark.parametrize("form", FORMS)
def test_values_in_any_form(form, tmp_path):
    values = FORMS[form]
    check(values, np.asarray(BASE if form == "array-like" else values), tmp_path)


def test_the_same_without_the_compiled_sums():
    code = (
        "import sys, tempfile, pathlib, numpy as np; sys.path.insert(0, sys.argv[1]);"
        "import test_arrays as t;"
        "[t.check(v, np.asarray(t.BASE if f == 'array-like' else v), pathlib.Path(tempfile.mkdtemp()))"
        " for f, v in t.FORMS.items()]"
    )
    folder = __file__.rpartition("/")[0]
    subprocess.run([sys.executable, "-c", code, folder], check=True, env={"SGSDUMP_NO_KERNEL": "1"}, timeout=300)


def test_a_scalar_that_is_read_twice_is_not_read_from_freed_memory():
    comparison = sgsdump.compare(dump_of(Tensor.of("loss", np.float32(3))), dump_of(Tensor.of("loss", np.float32(4))))
    assert comparison["loss"].mse == 1


def test_torch_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    plain = torch.from_numpy(BASE.copy())
    for tensor in (plain, plain.clone().requires_grad_(), plain.transpose(0, 2)):
        check(tensor, np.asarray(tensor.detach()), tmp_path)
    wide = as_array(plain.to(torch.bfloat16))
    assert wide.dtype.name == "bfloat16" and np.array_equal(wide.astype(np.float32), BASE)
    assert np.array_equal(as_array(torch.ones(2, dtype=torch.bfloat16)[0]).astype(np.float32), np.float32(1))


@pytest.mark.parametrize("values", [[[1.0], [1.0, 2.0]], None, np.array([1, None], object)])
def test_what_holds_no_numbers_is_refused(values):
    with pytest.raises(ValuesError, match=r"x.* (holds Python objects|cannot be converted to an array)"):
        Tensor.of("x", values)
