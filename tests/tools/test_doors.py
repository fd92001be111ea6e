"""Each door is run as the SDK's manual shows it: by its path, from a work folder of the user's; as a program of its own
where that is what matters, else in this process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
import tflite_models
from door_runs import TOOLS, door, fails, program, succeeds
from PIL import Image
from platforms import unix_only
from small_nets import node, residual_net

from sgsdump import Dump, LossWarning, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.sigmastar import binary as sigmastar_bin

DOORS = sorted(path.name for path in TOOLS.iterdir() if path.is_file() and os.access(path, os.X_OK))
AT_SDK_PLACES = sorted(
    str(path.relative_to(TOOLS))
    for folder in ("DumpDebug", "Scripts")
    for path in (TOOLS / folder).rglob("*")
    if path.is_file() and os.access(path, os.X_OK)
)
# Every path that the SDK's manual tells to run.
MANUAL = {
    *("DumpDebug/auto_dump_debug.sh", "DumpDebug/histogram.py", "DumpDebug/show_address.sh"),
    *("DumpDebug/code/caffe_dump_data.py", "DumpDebug/code/onnx_dump_data.py"),
    *("Scripts/examples/sim_calibrator.py", "Scripts/examples/sim_optimizer.py"),
}
# Of several names of one shell, sh for instance, the last.
SHELLS = {Path(path).resolve(): name for name in ("sh", "bash", "dash") if (path := shutil.which(name))}.values()
SHAPE = "dim: 1 dim: 3 dim: 2 dim: 4"
PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(img_path, resizeH=8, resizeW=8, norm=True, nchw=False):
    pixels = np.asarray(Image.open(img_path).convert("RGB").resize((resizeW, resizeH)), np.float32)
    if norm:
        pixels = (pixels - 127) / 128
    return (pixels.transpose(2, 0, 1) if nchw else pixels)[None]
"""
INPUT_CONFIG = """
[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = prob;
dequantizations = TRUE;
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The user's folder: net_float.onnx (outputs prob, cat and sig), img.bmp, pre.py, input_config.ini."""
    proto = residual_net().proto
    proto.graph.node.append(node("Concat", ["c3", "sig"], "cat", axis=1))
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("cat", "sig"))
    (tmp_path / "three.onnx").write_bytes(onnx.shape_inference.infer_shapes(proto).SerializeToString())
    (tmp_path / "net_float.onnx").write_bytes(residual_net().proto.SerializeToString())
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "img.bmp")
    (tmp_path / "pre.py").write_text(PREPROCESS)
    (tmp_path / "input_config.ini").write_text(INPUT_CONFIG)
    return tmp_path


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A door as a module."""
    loader = SourceFileLoader(f"door_{name.partition('.')[0]}", str(TOOLS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


def test_onnx_dump_data(work: Path) -> None:
    words = "--model_file three.onnx --image ./img.bmp --dump_bin True -n pre.py".split()
    succeeds(work, "onnx_dump_data.py", *words)
    assert [path.name for path in (work / "dumpData").iterdir()] == ["onnx_NHWC_outtensor_dump.bin"]
    dump = open_dump(work / "dumpData/onnx_NHWC_outtensor_dump.bin")
    assert dump.variant == sigmastar_bin.FRAMEWORK
    inner = ["c1", "r1", "c2", "add", "r2", "pool", "c3", "gap", "flat", "fc"]
    assert [record.name for record in dump.records] == ["cat", "sig", *inner, "prob"]
    assert [record.op_index for record in dump.records] == list(range(13))
    words[words.index("True")] = "False"
    succeeds(work, "onnx_dump_data.py", *words)
    text = open_dump(work / "dumpData/onnx_NHWC_outtensor_dump.txt")
    for record, printed in zip(dump.records, text.records, strict=True):
        assert (record.name, record.op_type, record.tensor.info) == (printed.name, printed.op_type, printed.tensor.info)
        assert np.abs(record.tensor.real() - printed.tensor.real()).max() <= 5.1e-7
    for layout, data, cat in (("NHWC", "(1, 8, 8, 3)", "(1, 4, 4, 12)"), ("NCHW", "(1, 3, 8, 8)", "(1, 12, 4, 4)")):
        files = {path.name for path in (work / "dumpData" / layout).iterdir()}
        assert len(files) == 14
        assert {f"data#{data}", f"cat#{cat}", "prob#(1, 5)"} <= files
        lines = (work / "dumpData" / layout / f"data#{data}").read_text().splitlines()
        assert lines[1] == "input[0] data = {"


def test_onnx_dump_data_of_several_pictures(work: Path) -> None:
    Image.new("RGB", (8, 8)).save(work / "black.bmp")
    (work / "list.txt").write_text("img.bmp\nblack.bmp\n")
    words = "--model_file net_float.onnx --image list.txt --dump_bin False -n pre.py".split()
    succeeds(work, "onnx_dump_data.py", *words)
    stem = "onnx_NHWC_outtensor_dump"
    files = {"NHWC_img", "NCHW_img", "NHWC_black", "NCHW_black", f"{stem}_img.txt", f"{stem}_black.txt"}
    assert {path.name for path in (work / "dumpData").iterdir()} == files


def test_onnx_dump_data_equals_the_genuine_dump(work: Path, shared: Path) -> None:
    folder = shared / "sigmastar"
    words = ["--model_file", folder / "model/tiny.onnx", "-i", folder / "model/in_norm.txt", "--dump_bin", "True"]
    succeeds(work, "onnx_dump_data.py", *words)
    genuine = open_dump(folder / "reference_dumps/onnx/dump_bin_True/onnx_NHWC_outtensor_dump.bin")
    ours = open_dump(work / "dumpData/onnx_NHWC_outtensor_dump.bin")
    same_dump(ours, genuine, 1e-5)


def test_caffe_dump_data_equals_the_genuine_dump(work: Path, shared: Path) -> None:
    folder = shared / "sigmastar"
    model = ["--model_file", folder / "model/tiny.prototxt", "--weight_file", folder / "model/tiny.caffemodel"]
    for binary in ("True", "False"):
        words = [*model, "--i", folder / "model/in_norm.txt", "--dump_bin", binary]
        succeeds(work, "caffe_dump_data.py", *words)
    genuine = folder / "reference_dumps/caffe"
    same_dump(
        open_dump(work / "dumpData/caffe_NHWC_outtensor_dump.bin"),
        open_dump(genuine / "dump_bin_True/caffe_NHWC_outtensor_dump.bin"),
        1e-4,  # the genuine values come from another runtime
    )
    assert (work / "dumpData/shape.txt").read_bytes() == (genuine / "dump_bin_True/shape.txt").read_bytes()
    for file in (genuine / "dump_bin_False").rglob("*"):
        ours = work / "dumpData" / file.relative_to(genuine / "dump_bin_False")
        if file.is_file() and file.name != "shape.txt":
            same_dump(open_dump(ours), open_dump(file), 1e-4)


def test_caffe_dump_data_leaves_out_the_first_input_only(work: Path) -> None:
    inputs = "".join(
        f'layer {{ name: "in{n}" type: "Input" top: "{n}" input_param {{ shape {{ {SHAPE} }} }} }}' for n in "ab"
    )
    add = 'layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "x/sum" }'
    (work / "two.prototxt").write_text(inputs + add)
    (work / "two.caffemodel").write_bytes(b"\xa2\x06\x05\x0a\x03sum")  # one layer of the name "sum", no blobs
    for name, value in (("a", 1), ("b", 2)):
        np.save(work / f"{name}.npy", np.full((1, 3, 2, 4), value, np.float32))
    (work / "list.txt").write_text("a.npy,b.npy\n")
    words = "--model_file two.prototxt --weight_file two.caffemodel -i list.txt --dump_bin False".split()
    succeeds(work, "caffe_dump_data.py", *words)
    dump = open_dump(work / "dumpData/caffe_NHWC_outtensor_dump.txt")
    assert [(record.name, record.op_index, record.op_type) for record in dump.records] == [
        ("b", 0, "b"),
        ("x/sum", 1, "x/sum"),
    ]
    assert (dump["x/sum"].real() == 3).all()
    assert (work / "dumpData/shape.txt").read_text() == "".join(f"{n}\t(1, 3, 2, 4)\n" for n in ("a", "b", "x_sum"))
    assert "op_out[2] x_sum = {" in (work / "dumpData/NCHW/x_sum#(1, 3, 2, 4)").read_text()


def same_dump(ours: Dump, genuine: Dump, tolerance: float) -> None:
    """Everything but the values is equal; these are to ``tolerance`` of each tensor's maximum."""
    assert ours.variant == genuine.variant
    for record, other in zip(ours.records, genuine.records, strict=True):
        assert (record.io, record.slot, record.op_index, record.op_type) == (
            other.io,
            other.slot,
            other.op_index,
            other.op_type,
        )
        assert record.tensor.info == other.tensor.info
        values = other.tensor.real()
        assert np.abs(record.tensor.real() - values).max() <= tolerance * np.abs(values).max()


def test_tflite_dump_data(work: Path, shared: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra tflite is not installed")
    folder = shared / "sigmastar"
    for binary in ("True", "False"):
        words = ["-m", folder / "model/tiny.tflite", "-i", folder / "model/in_norm.txt", "--dump_bin", binary]
        succeeds(work, "tflite_dump_data.py", *words)
        name = "tflite_outtensor_dump.bin"
        genuine = open_dump(folder / "reference_dumps/tflite" / f"dump_bin_{binary}" / name)
        same_dump(open_dump(work / "dumpData" / name), genuine, 5e-6)


def test_tflite_dump_data_without_litert(work: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the model of the test is written by the extra tflite")
    (work / "ai_edge_litert.py").write_text("raise ImportError('absent')")
    (work / "m.tflite").write_bytes(tflite_models.float_model())
    said = fails(work, "tflite_dump_data.py", "-m", "m.tflite", "-i", "img.bmp", env={"PYTHONPATH": str(work)})
    assert "pip install 'sgsdump[tflite]'" in said


@pytest.mark.parametrize(
    ("sample", "benchmark", "report"),
    [
        ("dumps/tiny_fixed_a_elim_dequant", "dumps/tiny_float_a_full", "fixed_vs_float"),
        ("newstyle/fixed_new.bin", "newstyle/float_new.bin", "newstyle"),
    ],
)
def test_auto_dump_debug_prints_the_genuine_report(
    work: Path, shared: Path, sample: str, benchmark: str, report: str
) -> None:
    for place, name in ((sample, "sample.bin"), (benchmark, "benchmark.bin")):
        file = shared / "sigmastar" / place
        (work / name).symlink_to(file / "sigma_outtensor_dump.bin" if file.is_dir() else file)
    shown = succeeds(work, "auto_dump_debug.sh", "SGS_IPU_SDK", work / "sample.bin", work / "benchmark.bin")
    genuine = (shared / "sigmastar/compare_reports" / report / "doAnalyzeRmse_run.log").read_text().splitlines()
    out = work / "Undefined_benchmark.bin_DumpDebug_out"
    log = (out / "benchmark.bin_doAnalyzeRmse_run.log").read_text().splitlines()
    assert log == [f"{out.resolve()}/genCompareLayer", *genuine[1:]]
    assert shown.splitlines()[: len(log)] == log
    assert "conv1" in shown.split("because they are inside fused operators")[1]


def test_auto_dump_debug_on_the_sdk_s_edge_cases(work: Path, shared: Path) -> None:
    """The same lines, but where the SDK's are wrong: two numbers, four layers left out, marks behind inf and nan."""
    folder = shared / "sigmastar/compare_reports/edge_cases"
    shown = succeeds(work, "auto_dump_debug.sh", "SDK", folder / "sample.bin", folder / "benchmark.bin")
    ours = {line.split("\t")[0]: line for line in shown.splitlines() if "\tOP: " in line}
    genuine = (folder / "doAnalyzeRmse_run.log").read_text().splitlines()[1:]
    theirs = {line.split("\t")[0]: line.replace("-nan", "nan") for line in genuine}
    left_out = {"2.nchw2.xx.output0", "7.rs2.xx.output0", "19.dup.xx.output0", "20.x.y.xx.output0"}
    assert set(ours) - set(theirs) == left_out
    assert set(theirs) <= set(ours)
    other = {name for name in theirs if figures(ours[name]) != figures(theirs[name])}
    assert other == {"5.cube3.xx.output0", "22.big.xx.output0"}
    assert "COS: 0.999840" in ours["22.big.xx.output0"]
    assert "<<benchmark transposed NHWC to NCHW (COS 0.057178 as stored)>> MSE" in ours["3.cube.xx.output0"]
    assert sum("<<" in line for line in ours.values()) == 1
    marked = {name for name, line in ours.items() if line.endswith("     **** OVER threshold!!!! ****")}
    assert marked == {f"{name}.xx.output0" for name in ("5.cube3", "8.zerob", "12.hasinf", "13.jump")}


def figures(line: str) -> str:
    return line[line.index("MSE: ") :].partition("     ****")[0]


def test_auto_dump_debug_keeps_the_older_report(work: Path) -> None:
    for name in ("sample.bin", "benchmark.bin"):
        save_dump([Tensor.of("a", np.ones(4, np.float32))], work / name)
    for _ in range(3):
        succeeds(work, "auto_dump_debug.sh", "SDK", "sample.bin", "benchmark.bin")
    assert len(list(work.glob("Undefined_benchmark.bin_DumpDebug_out_backup_at_*"))) == 2


def test_auto_dump_debug_prints_the_manuals_lines_when_asked(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sample.bin", "benchmark.bin"):
        save_dump([Tensor.of("a", np.ones(4, np.float32), op_type="RELU")], work / name)
    monkeypatch.setenv("SGS_OP_TYPE", "1")
    shown = succeeds(work, "auto_dump_debug.sh", "SDK", "sample.bin", "benchmark.bin")
    log = (work / "Undefined_benchmark.bin_DumpDebug_out/benchmark.bin_doAnalyzeRmse_run.log").read_text().splitlines()
    assert log[1].split() == ["0.a.xx.output0", "OP_TYPE:RELU", "MSE:0.000000", "COS:1.000000", "RMSE:0.000000"]
    assert log[1] in shown


def test_auto_dump_debug_refuses(work: Path) -> None:
    save_dump([Tensor.of("a", np.ones(4, np.float32))], work / "a.bin")
    assert "end in .bin" in fails(work, "auto_dump_debug.sh", "SDK", "a.bin", "a.txt")
    assert "3 or 7" in fails(work, "auto_dump_debug.sh", "a.bin", "a.bin")
    assert "no such file" in fails(work, "auto_dump_debug.sh", "SDK", "a.bin", "b.bin")
    assert "Classification" in fails(work, "auto_dump_debug.sh", "SDK", "f", "x", "img.bmp", "l", "Any", "pre.py")
    assert not list(work.glob("*DumpDebug_out*"))


def test_dump_debug_prints_the_genuine_lines(work: Path, shared: Path) -> None:
    folder = shared / "sigmastar/newstyle"
    files = [folder / "fixed_new.bin", folder / "float_new.bin"]
    assert succeeds(work, "dump_debug.py", *files) == (folder / "dump_debug_fixed_float.txt").read_text()
    assert succeeds(work, "dump_debug.py", *files, "block/dw").startswith("0.block/dw\tMSE:\t0.000637\t")
    name, *rows = (work / "fixed.txt").read_text().splitlines()
    assert name == "block/dw"
    assert [len(row.split("  ")) for row in rows] == [17] * 75
    values = np.array(" ".join(rows).split(), np.float32)
    assert np.abs(values - open_dump(files[0])["block/dw"].real().reshape(-1)).max() <= 5.1e-7
    assert (work / "float.txt").is_file()
    assert "did you mean 'block/dw'" in fails(work, "dump_debug.py", *files, "block/dv")


def test_dumps_of_nothing_in_common(work: Path) -> None:
    for name in ("a", "b"):
        save_dump([Tensor.of(name, np.ones(4, np.float32))], work / f"{name}.bin")
    done = door(work, "dump_debug.py", "a.bin", "b.bin")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 3)
    assert "no layer could be compared" in fails(work, "auto_dump_debug.sh", "SDK", "a.bin", "b.bin")


def test_dump_debug_reads_dumps_without_shapes(work: Path, shared: Path) -> None:
    """The SDK's ends in a TypeError for the old simulators' dumps."""
    names = ("tiny_fixed_a_elim_dequant", "tiny_float_a_full")
    files = [shared / "sigmastar/dumps" / name / "sigma_outtensor_dump.bin" for name in names]
    genuine = (shared / "sigmastar/newstyle/dump_debug_fixed_float.txt").read_text()
    assert succeeds(work, "dump_debug.py", *files) == genuine


def test_histogram(work: Path, shared: Path) -> None:
    dump = shared / "sigmastar/dumps/tiny_float_a_full/sigma_outtensor_dump.bin"
    succeeds(work, "histogram.py", dump, shared / "sigmastar/calibration/tiny_L1/tensor_min_max.txt")
    assert len(list((work / "Histograms").glob("*.png"))) > 10


def test_presets_of_the_sdk_are_taken_by_name(work: Path) -> None:
    presets = work / "SDK/Scripts/calibrator/preprocess_method"
    presets.mkdir(parents=True)
    (work / "pre.py").rename(presets / "mobile_v1.py")
    words = "-i img.bmp -m net_float.onnx --input_config input_config.ini -n".split()
    sdk = {"SGS_IPU_DIR": str(work / "SDK")}
    for name in ("calibrator.py", "sim_calibrator.py"):
        succeeds(work, name, *words, "mobile_v1", env=sdk)
    succeeds(work, "sim_optimizer.py", *words, "mobile_v1", env=sdk)
    simulator = "-i img.bmp -m net_float.onnx -c Unknown -t Float -n mobile_v1".split()
    succeeds(work, "simulator.py", *simulator, env=sdk)
    for name, env in (("mobile_v1", {"SGS_IPU_DIR": ""}), ("other", sdk)):
        assert "there is no preprocess file" in fails(work, "sim_optimizer.py", *words, name, env=env)
    (work / "mobile_v1.py").write_text("def get_image(path, norm=True, nchw=False):\n    raise OSError('mine')\n")
    assert "OSError: 'mine'" in fails(work, "simulator.py", *simulator, env=sdk)


@unix_only
def test_labels_are_read_from_a_file_only(work: Path) -> None:
    os.mkfifo(work / "labels.txt")
    words = "-i img.bmp -m net_float.onnx -c Classification -t Float -n pre.py -l labels.txt".split()
    assert "cannot read labels.txt: it is a device or a pipe" in fails(work, "simulator.py", *words)


def test_calibrator_simulator_and_the_whole_loop(work: Path) -> None:
    words = "-i img.bmp -m net_float.onnx -n pre.py --input_config input_config.ini --num_process 2".split()
    done = door(work, "calibrator.py", *words, "--quant_level", "L5", "-sth", "0.002", "-c", "Unknown")
    assert done.returncode == 0, done.stderr
    assert "--category has no effect" in done.stderr
    assert (work / "net_fixed.onnx").is_file()
    assert (work / "log/tensor_min_max.txt").is_file()
    first = (work / "net_fixed.onnx").read_bytes()
    succeeds(work, "sim_calibrator.py", *words, "-o", ".")
    assert (work / "net_fixed.onnx").read_bytes() == first
    for mode, ending in (("JSON", "json"), ("Pickle", "pkl")):
        succeeds(work, "save_quant_param.py", "-m", "net_fixed.onnx", "--output_mode", mode)
        succeeds(work, "sim_calibrator.py", *words, "--quant_file", f"net_fixed.onnx.{ending}", "-o", "again.onnx")
        assert (work / "again.onnx").read_bytes() == first
    assert "cannot read q.pkl" in fails(work, "sim_calibrator.py", *words, "--quant_file", "q.pkl")
    assert "is a float model" in fails(work, "save_quant_param.py", "-m", "net_float.onnx")

    (work / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    simulator = "-i img.bmp -m net_fixed.onnx -c Unknown -t Fixed -n pre.py --skip_garbage".split()
    succeeds(work, "simulator.py", *simulator)
    fixed = (work / "sigma_outtensor_dump.bin").read_bytes()
    with open_dump(work / "sigma_outtensor_dump.bin") as dump:  # written over below
        prob = np.array(dump["prob"].real()).reshape(-1)
    values = "".join(f"{v:.6f}  " for v in prob)
    expected = f"prob Tensor:\n{{\ntensor dim:2,\tOriginal shape:[1 5]\ntensor data:\n{values}\n}}\n"
    assert (work / "output/unknown_net_fixed.onnx_img.bmp.txt").read_text() == expected

    (work / "labels.txt").write_text("zero\none\ntwo\nthree\nfour\n")
    words = "-i img.bmp -m net_fixed.onnx -c Classification -t Fixed -n pre.py -l labels.txt".split()
    best = int(prob.argmax())
    name = ["zero", "one", "two", "three", "four"][best]
    assert f"1. class {best} {name}, score {prob[best]:f}" in succeeds(work, "simulator.py", *words)
    assert "cannot read x" in fails(work, "simulator.py", *"-i img.bmp -m x -c Unknown -t Offline".split())

    (work / "DebugConfig.txt").write_text("my own\n")  # the script's own folders are read, not this one
    models = ["SDK", "net_float.onnx", "net_fixed.onnx", "img.bmp", "labels.txt", "Unknown", "pre.py"]
    shown = succeeds(work, "auto_dump_debug.sh", *models)
    out = work / "Unknown_net_float.onnx_DumpDebug_out"
    assert (out / "fixed/sigma_outtensor_dump.bin").read_bytes() == fixed
    assert (out / "net_float.onnx_doAnalyzeRmse_run.log").read_text() in shown
    assert "11.prob.xx.output0\tOP: SOFTMAX  Type: float  MSE: " in shown
    assert "\nPASS: output prob RMSE " in shown
    assert "\nNo cause: no layer exceeds the limits.\n" in shown


def test_sim_optimizer_as_the_manual_has_it(work: Path) -> None:
    """The list in the script is changed, then sim_calibrator.py takes the first file; -n is a name without .py."""
    shutil.copytree(TOOLS, work / "SDK")
    script = work / "SDK/sim_optimizer.py"
    lines = script.read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("compression_rates = ["))
    lines[place] = "compression_rates = [0.7, 1.0]"
    script.write_text("\n".join(lines), encoding="utf-8")
    (work / "optimized_quant_info_0.pkl").write_bytes(b"an older one")
    env = {"PYTHONPATH": str(TOOLS.parent)}
    words = "-i img.bmp -m net_float.onnx -n pre --input_config input_config.ini".split()
    examples = work / "SDK/Scripts/examples"
    shown = succeeds(work, examples / "sim_optimizer.py", *words, env=env)
    names = [f"optimized_quant_info_{number}" for number in ("0", "0_0.7", "1", "1_1")]
    assert sorted(path.stem for path in work.glob("*.pkl")) == names
    for short, long in (names[:2], names[2:]):
        assert (work / f"{short}.pkl").read_bytes() == (work / f"{long}.pkl").read_bytes()
        assert f"{long}.pkl, {short}.pkl" in shown
    shown = succeeds(
        work, examples / "sim_calibrator.py", *words, "--quant_file", "./optimized_quant_info_1.pkl", env=env
    )
    assert "net_fixed.onnx: 4 convolutions" in shown and ", 0 of them" not in shown


def test_splite_doors(work: Path) -> None:
    tensors = [Tensor.of("a/b", np.arange(6, dtype=np.float32)), Tensor.of("z" * 500, np.ones(2, np.float32))]
    records = [Record("out", i, 3, "SPLIT", tensor) for i, tensor in enumerate(tensors)]
    with pytest.warns(LossWarning, match="an operator type, kept as its operator's name"):
        save_dump(records, work / "dump.bin")
    succeeds(work, "splite_binary_to_binary", "dump.bin")
    file = work / "dump/3.a_b.xx.output0/output"
    assert file.read_bytes().endswith(b"//buffer data size: 24\n" + np.arange(6, dtype=np.float32).tobytes())
    assert len(list((work / "dump").glob("3.zzz*.xx.output1/output"))) == 1
    succeeds(work, "splite_dump_binary", "dump.bin", "-o", "text")
    printed = (work / "text/3.a_b.xx.output0/_data").read_text()
    assert "\n0.000000, 1.000000, 2.000000, 3.000000, 4.000000, 5.000000, \n" in printed
    assert "no such file" in fails(work, "splite_binary_to_binary", "absent.bin")


def elf(kind: int, *, big: bool = False) -> bytes:
    """The head of an ELF file of this type, in either byte order."""
    return b"\x7fELF\x02" + (b"\x02" if big else b"\x01") + bytes(10) + kind.to_bytes(2, "big" if big else "little")


@pytest.mark.parametrize("shell", SHELLS)
def test_show_address(shell: str, work: Path) -> None:
    tools = work / "bin"
    tools.mkdir()
    for name in (shell, "sh", "od", "tr"):
        if not (tools / name).exists():
            (tools / name).symlink_to(str(shutil.which(name)))
    for big in (False, True):
        (work / f"core{int(big)}").write_bytes(elf(4, big=big) + bytes(100))
        (work / f"program{int(big)}").write_bytes(elf(3, big=big) + bytes(100))
    env = {"PATH": str(tools)}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [str(tools / shell), str(TOOLS / "show_address.sh"), *map(str, words)]
        return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)

    refused = [["core0"], ["program0", "absent"], ["program0", "pre.py"], ["pre.py", "core0"], ["core0", "core0"]]
    for words in [*refused, ["core0", "program0"], ["core1", "program1"]]:
        done = run(*words)
        assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, ""), words
    assert "program0 is not a core file; name the executable first" in run("core0", "program0").stderr
    assert "gdb is not installed" in run("program0", "core0").stderr
    (tools / "gdb").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (tools / "gdb").chmod(0o755)
    for big in "01":
        shown = run(f"program{big}", f"core{big}")
        assert shown.returncode == 0
        assert shown.stdout.endswith(
            f"|info proc mappings|-ex|info sharedlibrary|-ex|thread apply all backtrace|program{big}|core{big}|"
        )


@pytest.mark.parametrize("name", [name for name in DOORS if not name.endswith(".sh")])
def test_importing_a_door_does_nothing(name: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    before, path = sorted(work.iterdir()), list(sys.path)
    assert callable(imported(name, monkeypatch).main)
    assert (sorted(work.iterdir()), sys.path) == (before, path)


def test_a_checkout_that_is_not_installed_says_so(work: Path) -> None:
    """Without site-packages the door still finds the package beside it, which misses numpy."""
    command = [sys.executable, "-S", str(TOOLS / "onnx_dump_data.py"), "-m", "x", "-i", "y"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is not installed; install what sgsdump needs: " in done.stderr and "-m pip install" in done.stderr


@pytest.mark.parametrize("name", DOORS)
def test_the_readme_names_every_door(name: str) -> None:
    assert f"`{name}`" in (TOOLS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("place", ["auto_dump_debug.sh", "DumpDebug/auto_dump_debug.sh"])
def test_auto_dump_debug_runs_in_any_shell(shell: str, place: str, work: Path) -> None:
    save_dump([Tensor.of("a", np.ones(4, np.float32))], work / "a.bin")
    environment = {**os.environ, "PYTHON": sys.executable}
    for benchmark, status in (("a.bin", 0), ("a.txt", 2)):
        command = [shell, str(TOOLS / place), "SDK", "a.bin", benchmark]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert done.stderr.count("\n") == bool(status)


def test_the_manuals_paths_are_there() -> None:
    assert set(AT_SDK_PLACES) >= MANUAL
    assert {Path(place).name for place in AT_SDK_PLACES} <= set(DOORS)
    template = TOOLS / "cfg/DebugConfig.txt"
    assert template.read_bytes() == (TOOLS.parent / "cfg/DebugConfig.txt").read_bytes()


@pytest.mark.parametrize("place", [place for place in AT_SDK_PLACES if place.endswith(".py")])
def test_a_door_at_its_sdk_place_is_the_same_door(place: str, work: Path) -> None:
    shown = program(work, place, "--help")
    assert (shown.returncode, shown.stdout) == (0, succeeds(work, Path(place).name, "--help"))
    assert door(work, place, "--no-such-option").returncode == 2


def test_onnx_dump_data_as_a_program_and_at_its_sdk_place(work: Path) -> None:
    words = "--model_file net_float.onnx --image ./img.bmp --dump_bin True -n pre.py".split()
    assert program(work, "onnx_dump_data.py", *words).returncode == 0
    file = work / "dumpData/onnx_NHWC_outtensor_dump.bin"
    first = file.read_bytes()
    file.unlink()
    succeeds(work, "DumpDebug/code/onnx_dump_data.py", *words)
    assert file.read_bytes() == first


@pytest.mark.parametrize("place", [name for name in [*DOORS, *AT_SDK_PLACES] if not name.endswith(".sh")])
def test_a_copied_folder_without_sgsdump_says_how_to_install_it(place: str, tmp_path: Path) -> None:
    shutil.copytree(TOOLS, tmp_path / "SDK")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", str(tmp_path / "SDK" / place), "-m", "x", "-i", "y"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{Path(place).name}: error: sgsdump is not installed")
    assert f"{sys.executable} -m pip install" in done.stderr


def test_a_copied_folder_finds_the_installed_sgsdump(work: Path) -> None:
    save_dump([Tensor.of("a", np.ones(4, np.float32))], work / "a.bin")
    shutil.copytree(TOOLS, work / "SDK")
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(TOOLS.parent)}
    command = ["sh", "SDK/DumpDebug/auto_dump_debug.sh", "SDK", "a.bin", "a.bin"]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
