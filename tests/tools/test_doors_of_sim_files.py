"""The doors on the SDK's own model files, as the manual's command lines have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from door_runs import door, fails, succeeds
from PIL import Image
from sim_files import dump_of, unpacked

from sgsdump import open_dump

PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(img_path, resizeH=16, resizeW=16, norm=True, nchw=False):
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
outputs = d;
dequantizations = TRUE;
"""
CALIBRATION = "-i img.bmp -m net_float.sim -n net --input_config input_config.ini --num_process 2".split()


@pytest.fixture
def golden(shared: Path) -> Path:
    return shared / "sigmastar/sim/att"


@pytest.fixture
def work(tmp_path: Path, golden: Path) -> Path:
    """The user's folder: net_float.sim, net_cmodel.sim, net_fixed.sim, net.img, img.bmp, net.py, input_config.ini."""
    for name, own in (("float", "float"), ("cmodel_float", "cmodel"), ("fixed", "fixed")):
        unpacked(golden / f"{name}.sim.xz", tmp_path).rename(tmp_path / f"net_{own}.sim")
    unpacked(golden / "net.img.xz", tmp_path)
    pixels = np.clip(np.round(np.load(golden / "input.npy")), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "img.bmp")
    (tmp_path / "net.py").write_text(PREPROCESS)
    (tmp_path / "input_config.ini").write_text(INPUT_CONFIG)
    return tmp_path


def simulator(model: str, kind: str, *more: str) -> list[str]:
    return [
        *"simulator.py -i img.bmp -c Unknown -n net.py --num_process 10 -l".split(),
        "labels.txt",
        "-m",
        model,
        "-t",
        kind,
        *more,
    ]


def test_simulator_dumps_what_the_sdk_dumps_of_float_fixed_and_offline_models(work: Path, golden: Path) -> None:
    (work / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\npath=.\n")
    (work / "theirs").mkdir()
    for model, kind, dump, step in (
        ("net_float.sim", "Float", "float.bin.xz", 1e-5),
        ("net_fixed.sim", "Fixed", "fixed.bin.xz", 0),
        ("net.img", "Offline", "fixed.bin.xz", 0),
    ):
        shown = succeeds(work, *simulator(model, kind))
        assert shown.count("the fixed model inside this offline image") == (kind == "Offline")
        assert (work / f"output/unknown_{model}_img.bmp.txt").read_text().startswith("d Tensor:\n{\ntensor dim:4,")
        theirs = [record for record in dump_of(golden / dump, work / "theirs").records if record.io == "out"]
        with open_dump(work / "sigma_outtensor_dump.bin") as ours:
            values = {record.name: record.tensor.raw() for record in ours.records if record.io == "out"}
            assert list(values) == [record.name for record in theirs]
            for record in theirs:
                difference = values[record.name].reshape(-1).astype(np.float64) - record.tensor.raw().reshape(-1)
                assert np.abs(difference).max() <= step, record.name


def test_simulator_writes_the_board_s_input_of_a_fixed_sim(work: Path) -> None:
    succeeds(work, *simulator("net_fixed.sim", "Fixed", "--dump_rawdata"))
    assert (work / "img.bmp.bin").read_bytes()[: 16 * 16 * 3] == np.asarray(Image.open(work / "img.bmp")).tobytes()


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("net_fixed.sim", "Float", "net_fixed.sim is a fixed model"),
        ("net_float.sim", "Fixed", "net_float.sim is a float model; simulate it with -t Float"),
        ("net_fixed.sim", "Offline", "net_fixed.sim is not an offline image"),
        ("absent.img", "Offline", "cannot read absent.img"),
    ],
)
def test_simulator_refuses_another_type(work: Path, model: str, kind: str, message: str) -> None:
    assert message in fails(work, *[word for word in simulator(model, kind) if word not in ("--num_process", "10")])


@pytest.mark.parametrize("name", ["calibrator.py", "sim_calibrator.py"])
def test_calibrators_write_onnx_and_say_so_where_a_sim_is_named(work: Path, name: str) -> None:
    theirs = (work / "net_fixed.sim").read_bytes()
    done = door(work, name, *CALIBRATION, "-o", "net_fixed.sim")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"{name}: writes ONNX, not .sim: net_fixed.onnx; net_fixed.sim stays as it is\n"
    assert (work / "net_fixed.sim").read_bytes() == theirs and (work / "net_fixed.onnx").is_file()
    (work / "net_fixed.sim").unlink()
    done = door(work, *simulator("net_fixed.sim", "Fixed"))
    assert done.returncode == 0 and "there is no net_fixed.sim; using net_fixed.onnx" in done.stderr
    models = ["SDK", "net_float.sim", "net_fixed.sim", "img.bmp", "labels.txt", "Unknown", "net"]
    assert "COS" in succeeds(work, "auto_dump_debug.sh", *models)


def test_sgsdump_calibrate_refuses_to_write_a_sim(work: Path) -> None:
    from sgsdump.cli import main

    assert main(["calibrate", "-i", "x", "-m", str(work / "net_float.sim"), "-o", str(work / "y.sim")]) == 2
    assert not (work / "y.sim").exists()


def test_sim_optimizer_and_sim_calibrator_as_the_manual_has_them(work: Path) -> None:
    succeeds(work, "sim_optimizer.py", *CALIBRATION)
    assert len(list(work.glob("optimized_quant_info_?.pkl"))) == 7
    shown = succeeds(work, "sim_calibrator.py", *CALIBRATION, "--quant_file", "./optimized_quant_info_0.pkl")
    assert "optimized_quant_info_0.pkl: " in shown and "net_fixed.onnx: 3 convolutions" in shown


def test_a_name_of_the_sdk_s_presets_is_refused_with_what_to_do(work: Path) -> None:
    words = [word if word != "net" else "caffe_mobilenet_v2" for word in CALIBRATION]
    for name in ("calibrator.py", "sim_calibrator.py", "sim_optimizer.py"):
        said = fails(work, name, *words)
        assert said.startswith(f"{name}: error: there is no preprocess file caffe_mobilenet_v2.py in ")
        assert "set SGS_IPU_DIR" in said and "write caffe_mobilenet_v2.py" in said


def test_auto_dump_debug_of_sim_files_prints_the_lines_of_their_dumps(work: Path) -> None:
    models = ["SDK", "net_float.sim", "net_fixed.sim", "img.bmp", "labels.txt", "Unknown", "net.py"]
    seven = succeeds(work, "auto_dump_debug.sh", *models)
    folder = work / "Unknown_net_float.sim_DumpDebug_out"
    for kind in ("fixed", "float"):
        (folder / kind / "sigma_outtensor_dump.bin").rename(work / f"{kind}.bin")
    three = succeeds(work, "auto_dump_debug.sh", "SDK", "fixed.bin", "float.bin")
    lines = [line for line in three.splitlines() if "\tOP: " in line]
    assert [line.split("\t")[0] for line in lines if line in seven][-1] == "6.d.xx.output0"
    assert len(lines) == sum("\tOP: " in line for line in seven.splitlines()) > 3
    done = door(work, "dump_debug.py", "fixed.bin", "float.bin")
    assert done.returncode == 0 and "d\tMSE:\t" in done.stdout


def test_save_quant_param_of_a_fixed_sim(work: Path) -> None:
    assert "net_fixed.sim.json: " in succeeds(work, "save_quant_param.py", "-m", "net_fixed.sim")


def test_show_img_info_prints_the_header_as_parse_img_does(work: Path, golden: Path) -> None:
    theirs = (golden / "parse_img.txt").read_text().replace("SGSI\x01", "SGSI")
    expected = [line for line in theirs.splitlines() if not line.startswith("SGS_FASRRUN_MODEL_SIZE")]
    assert succeeds(work, "show_img_info.py", "-m", "net.img").splitlines() == expected
    assert succeeds(work, "show_img_info.py", "-m", "net.img", "--version") == "1.1.5_verified_21061809\n"
    assert "net_fixed.sim is not an offline image" in fails(work, "show_img_info.py", "-m", "net_fixed.sim")
    head = (work / "net.img").read_bytes()
    (work / "net.img").write_bytes(head[:0x98C] + b"\xff\xff\xff\xff" + head[0x990:])
    assert "4294967295 inputs or outputs" in fails(work, "show_img_info.py", "-m", "net.img")


def test_show_tensor_info_says_where_tensors_lie(work: Path) -> None:
    succeeds(work, "show_tensor_info.py", "-m", "net_fixed.sim")
    rows = [line.split("\t") for line in (work / "TensorID_tensor.txt").read_text().splitlines()]
    assert rows[0] == ["id", "name", "type", "shape", "begin", "end", "bytes", "first_op", "last_op"]
    assert rows[1] == ["2", "mm", "UINT8", "1x16x16x8", "4096", "8192", "4096", "3", "4"]
    assert [row[1] for row in rows[1:]] == ["mm", "s", "cr", "s#/TileOutput#14"]
    operators = [line.split("\t") for line in (work / "TensorID_op.txt").read_text().splitlines()]
    assert operators[2] == ["1", "LOGISTIC", "s", "8192", "8192", "3 5"]
    for unit in ("op", "tensor"):
        assert (work / f"TensorID_{unit}.png").read_bytes().startswith(b"\x89PNG")
        (work / f"TensorID_{unit}.png").unlink()
    succeeds(work, "show_tensor_info.py", "-m", "net_fixed.sim", "-u", "op")
    assert (work / "TensorID_op.png").is_file() and not (work / "TensorID_tensor.png").exists()
    assert "is a float model" in fails(work, "show_tensor_info.py", "-m", "net_float.sim")
    assert "cannot read absent.sim" in fails(work, "show_tensor_info.py", "-m", "absent.sim")


def test_show_conv_qtype_info_writes_the_types_of_convolutions(work: Path, golden: Path) -> None:
    words = "--input_config input_config.ini --quant_level".split()
    done = door(work, "show_conv_qtype_info.py", "-m", "net_cmodel.sim", *words, "8")
    assert (done.returncode, "--input_config has no effect" in done.stderr) == (0, True)
    lines = (work / "Tensor_qtype.txt").read_text().splitlines()
    assert lines[0] == "//[qtype_INT8]:tensorNum:6,opNum:3"
    assert lines[1] == "IbName:[data],Qtype:[UINT8],KbName:[c_w],Qtype:[INT8]"
    unpacked(golden.parent / "tiles_16.fixed.sim.xz", work)
    succeeds(work, "show_conv_qtype_info.py", "-m", "tiles_16.fixed.sim", "--quant_level", "ALL")
    heads = [line for line in (work / "Tensor_qtype.txt").read_text().splitlines() if line.startswith("//")]
    assert [head.partition("]")[0] for head in heads] == ["//[qtype_INT16", "//[qtype_INT8", "//[qtype_INT4"]
    assert int(heads[0].rpartition(":")[2]) > 0 and heads[2].endswith("tensorNum:0,opNum:0")
    unpacked(golden / "Debug_float.sim.xz", work)
    said = fails(work, "show_conv_qtype_info.py", "-m", "Debug_float.sim")
    assert "the tensor 'data' has no integer type" in said


@pytest.mark.parametrize(
    "name",
    [
        *("simulator.py", "calibrator.py", "sim_calibrator.py", "sim_optimizer.py", "save_quant_param.py"),
        *("show_img_info.py", "show_tensor_info.py", "show_conv_qtype_info.py", "auto_dump_debug.sh"),
    ],
)
def test_help_has_an_example_with_the_sdk_s_files(work: Path, name: str) -> None:
    shown = succeeds(work, name, "--help")
    assert f"{name} " in shown and (".sim" in shown or ".img" in shown)
