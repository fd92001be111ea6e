"""Files of torch, made by hand."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator

import numpy as np

from fuzzing.seeds.seed import Seed


def torch_files() -> Iterator[Seed]:
    """A state dict (strided, bfloat16 and quantised tensors, a module saved whole) in both forms; a tree."""

    def text(word: str) -> bytes:
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def tensor(key: str, kind: str, size: tuple[int, int], stride: tuple[int, int], more: bytes = b"") -> bytes:
        of = text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + b"K\4t"
        how = more or b"\x89}"
        function = b"_rebuild_qtensor" if more else b"_rebuild_tensor_v2"
        numbers = b"".join(b"K" + bytes([number]) for number in size), b"".join(b"K" + bytes([n]) for n in stride)
        return (
            b"ctorch._utils\n"
            + function
            + b"\n(("
            + of
            + b"QK\0("
            + numbers[0]
            + b"t("
            + numbers[1]
            + b"t"
            + how
            + b"tR"
        )

    quantiser = b"(ctorch\nper_tensor_affine\nG?\xb9\x99\x99\x99\x99\x99\x9aK\3t\x89}"
    one = tensor("0", "FloatStorage", (2, 2), (1, 2))
    module = b"c__main__\nNet\n)\x81}" + text("_parameters") + b"}(" + text("w") + one + b"usb"
    body = b"".join(
        (
            b"}q\0(" + text("a") + one + text("b") + tensor("1", "BFloat16Storage", (2, 2), (2, 1)),
            text("q") + b"]" + tensor("2", "QUInt8Storage", (1, 4), (4, 1), quantiser) + b"a" + text("m") + module,
            text("o") + b"ccollections\nOrderedDict\n)R(K\1Nu" + b"u",
        )
    )
    storages = {"0": np.float32([1, 2, 3, 4]).tobytes(), "1": bytes(range(8)), "2": bytes(range(4))}
    for name, content in (("state", body), ("one", one)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for member, data in {"data.pkl": b"\x80\2" + content + b".", "byteorder": b"little"}.items():
                archive.writestr(zipfile.ZipInfo(f"{name}/{member}"), data)
            for key, data in storages.items():
                archive.writestr(zipfile.ZipInfo(f"{name}/data/{key}"), data)
        yield Seed("torch", f"{name}.pt", {"": file.getvalue()})
        if name == "one":
            module = json.dumps(
                {"name": "root", "type": "Net", "children": [{"name": "root.a", "type": "Linear", "children": []}]}
            )
            run = {f"0/root.a/{side}.pth": file.getvalue() for side in ("input_0", "output")}
            yield Seed("torch_tree", "cpu_1", {"model_tree.json": module.encode(), **run})
    magic = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
    keys = b"](" + b"".join(map(text, storages)) + b"e"
    facts = b"}" + text("little_endian") + b"\x88s"
    pickles = b"".join(b"\x80\2" + content + b"." for content in (magic, b"M\xe9\3", facts, body, keys))
    counted = b"".join(struct.pack("<Q", 4) + data for data in storages.values())
    yield Seed("torch", "older.pth", {"": pickles + counted})
