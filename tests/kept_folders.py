"""Folders of tensors as people keep them: one tensor a file, in the formats and under the names that they use.

``python tests/kept_folders.py FOLDER`` writes all of them, to look at or to try commands on. Each is one run; the
tensors are the same, so any folder compares with ``benchmark.npz``. In the folders ``sample``, one tensor is wrong.
"""

import csv
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

SHAPES = {"conv1": (1, 8, 6, 6), "relu1": (1, 8, 6, 6), "layer1/conv": (1, 4, 3, 3), "prob": (1, 10)}
WRONG = "layer1/conv"
Tensors = dict[str, np.ndarray]


class Kept(NamedTuple):
    """A way to keep tensors.

    write    writes tensors into an empty folder.
    names    tensor names that a reader should give, by name of the tensor; those that differ only.
    shaped   whether the files, their names or a list tell the shapes.
    refused  words that the refusal must contain; empty if the folder opens.
    then     options that open a refused folder.
    """

    write: Callable[[Path, Tensors], None]
    names: Mapping[str, str] = MappingProxyType({})
    shaped: bool = True
    refused: tuple[str, ...] = ()
    then: tuple[str, ...] = ()


def tensors(wrong: str = "") -> Tensors:
    """Return the tensors of a run; with ``wrong``, this one has other values."""
    rng = np.random.default_rng(55)
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    if wrong:
        made[wrong] = made[wrong] + np.float32(0.5)
    return made


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def safetensors(folder: Path, run: Tensors) -> None:
    """One tensor a file; the key inside is the name, or always the same word."""
    from safetensors.numpy import save_file

    for number, (name, array) in enumerate(run.items()):
        save_file({"tensor" if number % 2 else name: array}, _file(folder, f"{name}.safetensors"))


def txt_lines(folder: Path, run: Tensors) -> None:
    """One value a line."""
    for name, array in run.items():
        _file(folder, f"{name}.txt").write_text("".join(f"{value:.9g}\n" for value in array.ravel()))


def csv_rows(folder: Path, run: Tensors) -> None:
    """The last axis as a row; a header line in one of the files."""
    for name, array in run.items():
        with _file(folder, f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            if name == "prob":
                rows.writerow([f"class{number}" for number in range(10)])
            rows.writerows([[f"{value:.9g}" for value in row] for row in array.reshape(-1, array.shape[-1])])


def nested_npy_npz(folder: Path, run: Tensors) -> None:
    """Save the first two arrays in one .npz archive, and each other array as a .npy file, in subfolders."""
    np.savez(_file(folder, "stage0/first.npz"), conv1=run["conv1"], relu1=run["relu1"])
    np.save(_file(folder, "stage1/layer1/conv.npy"), run["layer1/conv"])
    np.savez(_file(folder, "prob.npz"), run["prob"])


def pt_files(folder: Path, run: Tensors) -> None:
    """``torch.save(tensor, file)``."""
    import torch

    for name, array in run.items():
        torch.save(torch.from_numpy(array), _file(folder, f"{name}.pt"))


def bin_by_name(folder: Path, run: Tensors) -> None:
    """Shape and type in the file name."""
    for name, array in run.items():
        array.tofile(_file(folder, f"{name}_{'x'.join(map(str, array.shape))}_float32.bin"))


def ti_traces(folder: Path, run: Tensors) -> None:
    """TI's form of file names: channels, width and height."""
    for name, array in run.items():
        channels, height, width = (*array.shape[1:], 1, 1)[:3]
        array.tofile(_file(folder, f"{name}_{channels:05d}_{width:05d}x{height:05d}_float.bin"))


def qnn_results(folder: Path, run: Tensors) -> None:
    """``qnn-net-run``: names without special characters, NHWC, and the shapes in execution_metadata.yaml."""
    lines = ["inferences_completed: 1", "graph_name: net", "input_tensors:", "  - tensor_name: data"]
    lines += ["    datatype: QNN_DATATYPE_FLOAT_32", "    dimensions: [1, 12, 12, 3]", "output_tensors:"]
    for name, array in run.items():
        array = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
        name = name.replace("/", "_")
        array.tofile(_file(folder, f"Result_0/{name}.raw"))
        lines += [f"  - tensor_name: {name}", "    datatype: QNN_DATATYPE_UFIXED_POINT_8"]
        lines += [f"    dimensions: {list(array.shape)}"]
    (folder / "execution_metadata.yaml").write_text("\n".join(lines) + "\n")


def raw_json(folder: Path, run: Tensors) -> None:
    """Shapes and types in a JSON object by name."""
    for name, array in run.items():
        array.tofile(_file(folder, f"{name}.raw"))
    facts = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in run.items()}
    (folder / "shapes.json").write_text(json.dumps(facts, indent=1))


def raw_list(folder: Path, run: Tensors) -> None:
    """Name, shape and type in the lines of a text file."""
    lines = []
    for name, array in run.items():
        array.tofile(_file(folder, f"{name}.raw"))
        lines.append(f"{name} {'x'.join(map(str, array.shape))} float32\n")
    (folder / "list.txt").write_text("".join(lines))


def raw_csv(folder: Path, run: Tensors) -> None:
    """The same as a table with a header; file names instead of tensor names."""
    with (folder / "manifest.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "shape", "dtype"])
        for name, array in run.items():
            array.tofile(_file(folder, f"{name}.bin"))
            table.writerow([f"{name}.bin", str(list(array.shape)), "float32"])


def savetxt(folder: Path, run: Tensors) -> None:
    """``numpy.savetxt`` of slices, with the shape in a comment."""
    for name, array in run.items():
        with _file(folder, f"{name}.txt").open("w") as file:
            file.write(f"# shape: {array.shape}\n")
            for part in array.reshape(-1, *array.shape[-2:]):
                np.savetxt(file, part, fmt="%.9g")
                file.write("# next slice\n")


def among_others(folder: Path, run: Tensors) -> None:
    """Tensors beside an image, a log, a model, notes and a settings file."""
    for name, array in run.items():
        np.save(_file(folder, f"{name}.npy"), array)
    (folder / "input.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    (folder / "run.log").write_text("loading net.onnx\n4 tensors in 0.2 s\n")
    (folder / "net.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    (folder / "README.txt").write_text("made on Tuesday, before the fix\n")
    (folder / "settings.json").write_text('{"device": "npu", "threads": 4}\n')
    (folder / "timing.csv").write_text("layer,ms\nconv1,0.5\n")


def raw_unknown(folder: Path, run: Tensors) -> None:
    """Values without a header, and nothing that tells a type."""
    for name, array in run.items():
        array.tofile(_file(folder, f"{name}.raw"))


def two_of_a_name(folder: Path, run: Tensors) -> None:
    """The same tensors in two formats, as after a conversion that kept the old files."""
    for name, array in run.items():
        np.save(_file(folder, f"{name}.npy"), array)
    (run["conv1"] * 2).tofile(folder / "conv1_1x8x6x6_float32.bin")


_FLAT = {"layer1/conv": "layer1_conv"}
_NESTED = {"conv1": "stage0/first/conv1", "relu1": "stage0/first/relu1", "layer1/conv": "stage1/layer1/conv"}
OPENED = {
    "safetensors": Kept(safetensors),
    "txt_lines": Kept(txt_lines, shaped=False),
    "csv_rows": Kept(csv_rows, shaped=False),
    "nested_npy_npz": Kept(nested_npy_npz, names=_NESTED),
    "pt_files": Kept(pt_files),
    "bin_by_name": Kept(bin_by_name),
    "ti_traces": Kept(ti_traces),
    "qnn_results": Kept(qnn_results, names=_FLAT),
    "raw_json": Kept(raw_json),
    "raw_list": Kept(raw_list),
    "raw_csv": Kept(raw_csv),
    "savetxt": Kept(savetxt),
    "among_others": Kept(among_others),
}
REFUSED = {
    "raw_unknown": Kept(
        raw_unknown, shaped=False, refused=(".raw", "--raw-dtype float32"), then=("--raw-dtype", "float32")
    ),
    "two_of_a_name": Kept(two_of_a_name, refused=("'conv1'", "conv1.npy", "--files"), then=("--files", "*.npy")),
}


def make(folder: Path, name: str, wrong: str = "") -> Path:
    """Write one of the folders; return its path."""
    place = folder / name / ("sample" if wrong else "benchmark")
    place.mkdir(parents=True)
    {**OPENED, **REFUSED}[name].write(place, tensors(wrong))
    return place


def make_all(folder: Path) -> None:
    """Write all folders, right and wrong, and ``benchmark.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*OPENED, *REFUSED):
        for wrong in ("", WRONG):
            make(folder, name, wrong)
    np.savez(folder / "benchmark.npz", **tensors())


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
