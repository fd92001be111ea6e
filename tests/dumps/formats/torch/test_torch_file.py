"""torch's own files are read as torch reads them; nothing that a file says is run, and no size in it is believed."""

from __future__ import annotations

import struct
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.read_only import ReadOnly
from dumps.formats.torch import hand_made

from sgsdump import open_dump
from sgsdump.errors import FormatError, SgsdumpError
from sgsdump.tensors.dtypes import name_of

DATA = Path(__file__).parent / "data"
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


class TestZip(ReadOnly):
    """A file of torch 2.13: ``{"conv": {"weight": transposed}, "out": [bfloat16, conjugated], "epoch": 3}``."""

    format, file_name, data = "torch", "step.pt", (DATA / "zip.pt").read_bytes()

    def test_what_torch_saved_is_read_without_it(self, tmp_path: Path) -> None:
        modules = {name for name in sys.modules if name.partition(".")[0] == "torch"}
        dump = open_dump(self.write(tmp_path))
        assert list(dump) == ["conv.weight", "out.0", "out.1"]
        np.testing.assert_array_equal(dump["conv.weight"].stored(), np.arange(12, dtype=np.float32).reshape(3, 4).T)
        assert name_of(dump["out.0"].dtype) == "bfloat16" and dump["out.0"].real().tolist() == [1.5, -2]
        assert dump["out.1"].stored().tolist() == [1 - 2j]
        assert dump.notes == ("left out: 1 values that are not tensors (numbers, strings …)",)
        assert modules == {name for name in sys.modules if name.partition(".")[0] == "torch"}


class TestLegacy(TestZip):
    data = (DATA / "legacy.pt").read_bytes()


def opened(tmp_path: Path, data: bytes):
    path = tmp_path / "x.pth"
    path.write_bytes(data)
    return open_dump(path)


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_older_form_in_both_byte_orders(order: str, tmp_path: Path) -> None:
    values = struct.pack(f"{'<' if order == 'little' else '>'}4f", 1, 2, 3, 4)
    dump = opened(tmp_path, hand_made.legacy(hand_made.tensor(), {"0": values}, 4, order))
    assert dump["x"].stored().tolist() == [1, 2, 3, 4]


def test_an_archive_of_a_machine_of_the_other_byte_order(tmp_path: Path) -> None:
    values = struct.pack(">4f", 1, 2, 3, 4)
    dump = opened(tmp_path, hand_made.archive(hand_made.tensor(), {"0": values}, {"byteorder": b"big"}))
    assert dump["x"].stored().tolist() == [1, 2, 3, 4]


def test_views_share_their_storage_where_it_lies(tmp_path: Path) -> None:
    body = hand_made.named({"all": hand_made.tensor(), "every second": hand_made.tensor("0", (2,), (2,), 1)})
    dump = opened(tmp_path, hand_made.archive(body, {"0": FLOATS}))
    whole, part = dump["all"].raw_view(), dump["every second"].raw_view()
    assert part.tolist() == [2, 4] and not whole.flags.writeable and not part.flags.writeable
    assert np.shares_memory(whole, part)


@pytest.mark.parametrize(
    ("type_name", "expected"),
    [("QUInt8Storage", [0, 1, 200, 255]), ("QInt8Storage", [0, 1, -56, -1]), ("ByteStorage", [0, 1, 200, 255])],
)
def test_bytes_are_signed_as_their_storage_says(type_name: str, expected: list[int], tmp_path: Path) -> None:
    body = hand_made.tensor(of=hand_made.storage("0", type_name))
    dump = opened(tmp_path, hand_made.archive(body, {"0": bytes([0, 1, 200, 255])}))
    assert dump["x"].stored().tolist() == expected


def test_a_view_of_the_older_form_begins_at_its_first_element(tmp_path: Path) -> None:
    """A tensor's offset counts from there; a storage that is no view has None in its place."""
    view = b"(" + hand_made.text("view") + hand_made.number(1) + hand_made.number(3) + b"t"
    part = hand_made.tensor("0", (2,), of=hand_made.storage("0", view=view))
    later = hand_made.tensor("0", (2,), offset=1, of=hand_made.storage("0", view=view))
    whole = hand_made.tensor("0", (2,), of=hand_made.storage("0", view=b"N"))
    body = hand_made.named({"part": part, "later": later, "whole": whole})
    dump = opened(tmp_path, hand_made.legacy(body, {"0": FLOATS}))
    assert {name: dump[name].stored().tolist() for name in dump} == {"part": [2, 3], "later": [3, 4], "whole": [1, 2]}


def test_a_tensor_whose_negation_was_put_off_is_negated(tmp_path: Path) -> None:
    flags = b"}" + hand_made.text("neg") + b"\x88s"
    body = hand_made.tensor().removesuffix(b"tR") + flags + b"tR"
    data = np.array([1, -2, 3, 0], "<f4")
    file = tmp_path / "x.pt"
    file.write_bytes(hand_made.archive(body, {"0": data.tobytes()}))
    assert open_dump(file)["x"].stored().tolist() == [-1, 2, -3, 0]


def test_a_file_packed_again_is_read_too(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "x.pt"
    with zipfile.ZipFile(DATA / "zip.pt") as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in reversed(old.namelist()):
            new.writestr(name, old.read(name))
    assert open_dump(path)["conv.weight"].stored()[1].tolist() == [1, 5, 9]


CALL = b"cposix\nsystem\n(" + hand_made.text("touch ran") + b"tR"
HOSTILE = {
    "a call": CALL,
    "a call beside a tensor": hand_made.named({"x": hand_made.tensor(), "y": CALL}),
    "a call by a stacked name": hand_made.text("os")
    + hand_made.text("system")
    + b"\x93("
    + hand_made.text("ls")
    + b"tR",
    "eval": b"cbuiltins\neval\n(" + hand_made.text("1") + b"tR",
    "a nested load": b"ctorch.storage\n_load_from_bytes\n(" + hand_made.text("1") + b"tR",
    "a reference that is no storage": b"(" + hand_made.text("module") + b"tQ",
    "an extension": b"\x82\1",
    "a storage that is missing": hand_made.tensor("7"),
    "an offset beyond the storage": hand_made.tensor(offset=1),
    "strides beyond the storage": hand_made.tensor("0", (2, 2), (3, 1)),
    "a negative stride": hand_made.tensor("0", (4,), (-1,), 3),
    "a shape of 2^62": hand_made.tensor("0", (2**31, 2**31), (0, 0)),
    "a shape of 10^300": hand_made.tensor("0", (10**100,) * 3, (0, 0, 0)),
    "one value expanded to 2^40": hand_made.tensor("0", (2**20, 2**20), (0, 0)),
    "a rank of 1000": hand_made.tensor("0", (1,) * 1000, (1,) * 1000),
    "a list in itself": b"]q\0h\0a",
    "lists 100000 deep": b"]" * 100_000 + b"a" * 99_999,
    "tuples 100000 deep as a key": b"}" + b")" + b"\x85" * 100_000 + b"Ns",
    "a memo index of 2^31": b"Nr\xff\xff\xff\x7f",
    "a text of 2^40 bytes": b"\x8d" + (2**40).to_bytes(8, "little"),
    "a bytearray of 2^40 bytes": b"\x96" + (2**40).to_bytes(8, "little"),
    "doubled forty times": b"]" + b"".join(b"q%c(h%ch%ct" % (i, i, i) for i in range(40)),
    "attributes of a name": b"ctorch\nSize\n" + hand_made.named({"x": b"N"}) + b"b",
    "no tensor": b"K\1",
}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused_in_one_line(
    what: str, older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write = hand_made.legacy if older else hand_made.archive
    with pytest.raises(FormatError) as caught:
        opened(tmp_path, write(HOSTILE[what], {"0": FLOATS}))
    assert "x.pth" in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert [path.name for path in tmp_path.iterdir()] == ["x.pth"]


def test_objects_of_unknown_classes_are_searched_and_never_made(tmp_path: Path) -> None:
    made = b"c__main__\nNet\n)\x81" + hand_made.named(
        {
            "_parameters": b"ccollections\nOrderedDict\n)R" + hand_made.named({"w": hand_made.tensor()})[1:],
            "_modules": hand_made.named(
                {"conv": b"cno.such\nModule\n)\x81" + hand_made.named({"b": hand_made.tensor()}) + b"b"}
            ),
            "training": b"\x88",
        }
    )
    dump = opened(tmp_path, hand_made.archive(made + b"b", {"0": FLOATS}))
    assert list(dump) == ["w", "conv.b"]


def test_the_memory_of_a_wide_file_is_that_of_its_storages(tmp_path: Path) -> None:
    """A row of four that stands for many is a view, not many."""
    dump = opened(tmp_path, hand_made.archive(hand_made.tensor("0", (30, 4), (0, 1)), {"0": FLOATS}))
    stored = dump["x"].stored()
    assert stored.shape == (30, 4) and stored.strides == (0, 4) and (stored == [1, 2, 3, 4]).all()


torch_dtypes = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
newer_dtypes = "float8_e4m3fn float8_e5m2 float8_e8m0fnu uint16 uint32 uint64 complex32".split()


class TestAgainstTorch:
    """What torch wrote and torch reads."""

    @pytest.fixture
    def torch(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield pytest.importorskip("torch", reason="torch writes the files of these tests")

    def saved(self, torch, tmp_path: Path, value, older: bool = False):
        path = tmp_path / "x.pt"
        torch.save(value, path, _use_new_zipfile_serialization=not older)
        return open_dump(path)

    @pytest.mark.parametrize("older", [False, True])
    @pytest.mark.parametrize("name", torch_dtypes + newer_dtypes)
    def test_bits_of_every_type(self, torch, name: str, older: bool, tmp_path: Path) -> None:
        dtype = getattr(torch, name, None)
        if dtype is None:
            pytest.skip(f"this torch has no {name}")
        bits = torch.arange(48, dtype=torch.uint8) % (2 if name == "bool" else 251)
        tensor = bits.view(dtype).reshape(-1, 3)
        dump = self.saved(torch, tmp_path, {"x": tensor}, older)
        found = dump["x"].stored()
        assert name_of(found.dtype) == name and found.shape == tuple(tensor.shape)
        assert found.tobytes() == bytes(bits.tolist())

    @pytest.mark.parametrize("older", [False, True])
    def test_views_of_all_kinds(self, torch, older: bool, tmp_path: Path) -> None:
        base = torch.arange(60.0).reshape(3, 4, 5)
        views = {
            "transposed": base.permute(2, 0, 1),
            "sliced": base[1:, ::2, 3],
            "scalar": base[2, 3, 4],
            "expanded": base[:1].expand(4, 4, 5),
            "empty": base[:0],
            "negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
            "conjugated": torch.randn(4, dtype=torch.complex64).conj(),
        }
        dump = self.saved(torch, tmp_path, views, older)
        for name, tensor in views.items():
            assert np.array_equal(dump[name].stored(), tensor.resolve_neg().resolve_conj().numpy()), name

    @pytest.mark.parametrize("older", [False, True])
    def test_a_training_state(self, torch, older: bool, tmp_path: Path) -> None:
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(2, 1, 5, 5)).sum().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "whole": model}
        dump = self.saved(torch, tmp_path, state, older)
        expected = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        expected |= {f"whole.{name}": tensor for name, tensor in model.state_dict().items()}
        for number, slots in optimizer.state_dict()["state"].items():
            expected |= {f"optimizer.state.{number}.{name}": tensor for name, tensor in slots.items()}
        # the gradient of a parameter is not saved
        assert set(dump) == set(expected)
        for name, tensor in expected.items():
            assert np.array_equal(dump[name].stored(), tensor.detach().numpy()), name

    def test_quantised_tensors_keep_their_scales(self, torch, tmp_path: Path) -> None:
        values, scales = torch.randn(2, 3), torch.tensor([0.1, 0.2])
        tensors = {
            "whole": torch.quantize_per_tensor(values, 0.1, 3, torch.quint8),
            "channels": torch.quantize_per_channel(values, scales, torch.tensor([2, 2]), 0, torch.qint8),
            "zeros": torch.quantize_per_channel(values, scales, torch.tensor([0, 9]), 0, torch.qint8),
        }
        dump = self.saved(torch, tmp_path, tensors)
        for name, tensor in tensors.items():
            np.testing.assert_allclose(dump[name].real(), tensor.dequantize().numpy(), rtol=1e-6, err_msg=name)
        assert dump["whole"].stored().tolist() == tensors["whole"].int_repr().tolist()

    def test_what_has_no_values_is_told(self, torch, tmp_path: Path) -> None:
        state = {"s": torch.eye(2).to_sparse(), "m": torch.empty(2, device="meta"), "x": torch.ones(1)}
        dump = self.saved(torch, tmp_path, state)
        assert list(dump) == ["x"] and [note.split()[2] for note in dump.notes] == ["'s'", "'m'"]

    def test_scripted_and_traced_modules(self, torch, tmp_path: Path) -> None:
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU()).eval()
        torch.jit.script(model).save(str(tmp_path / "scripted.pt"))
        torch.jit.trace(model, torch.randn(1, 1, 5, 5)).save(str(tmp_path / "traced.pt"))
        for name in ("scripted.pt", "traced.pt"):
            dump = open_dump(tmp_path / name)
            assert list(dump) == ["0.weight", "0.bias"]
            assert np.array_equal(dump["0.weight"].stored(), model[0].weight.detach().numpy())

    def test_parameters_subclasses_and_one_tensor_alone(self, torch, tmp_path: Path) -> None:
        class Own(torch.Tensor):
            pass

        globals()["Own"] = Own
        Own.__qualname__ = "Own"
        dump = self.saved(torch, tmp_path, [torch.nn.Parameter(torch.ones(2)), torch.zeros(3).as_subclass(Own)])
        assert [dump[name].shape for name in ("0", "1")] == [(2,), (3,)]
        assert list(self.saved(torch, tmp_path, torch.ones(2))) == ["x"]


CUT = hand_made.named({"a": hand_made.tensor(), "b": hand_made.tensor()})


@pytest.mark.parametrize("end", range(len(CUT)))
def test_a_cut_pickle_is_told_in_one_line(end: int, tmp_path: Path) -> None:
    try:
        names = list(opened(tmp_path, hand_made.archive(CUT[:end], {"0": FLOATS})))
    except SgsdumpError as error:
        assert "\n" not in str(error)
    else:  # what was on the stack happens to be a tensor
        assert names in (["x"], ["a"])
