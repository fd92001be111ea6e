"""docs/board_against_pc.md as it is typed: what goes into the board, and what comes out of it."""

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
from small_nets import conv, model, weights

from sgsdump.cli import main
from sgsdump.commands.compare.board import outputs_of
from sgsdump.comparison.board import aligned

PAGE = Path(__file__).parents[2] / "docs" / "board_against_pc.md"
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = YUV_NV12;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = prob;
dequantizations = FALSE;
"""
PREPROCESS = """import numpy as np
from PIL import Image

def image_preprocess(path, norm=True):
    x = np.asarray(Image.open(path).convert("RGB"), np.float32)
    return (x - 127) / 128 if norm else x
"""


def test_every_command_of_the_page(tmp_path, monkeypatch, capsys):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    net = model([conv("prob", "data", pads=[1] * 4)], weights("prob", (6, 3, 3, 3)), {"data": (1, 3, 8, 12)}, ["prob"])
    onnx.save(net.proto, "net.onnx")
    Path("in.ini").write_text(INI)
    Path("preprocess.py").write_text(PREPROCESS)
    pixels = np.random.default_rng(1).integers(0, 255, (8, 12, 3)).astype(np.uint8)
    Image.fromarray(pixels).save("cat.jpg")
    calibrate = "calibrate -m net.onnx -i cat.jpg -n preprocess.py --input-config in.ini --quant-level L1"
    assert main(calibrate.split()) == 0
    commands = re.findall(r"(?m)^sgsdump (.*)$", PAGE.read_text())
    assert len(commands) == 3
    assert main(shlex.split(commands[0])) == 0
    assert len(Path("cat.jpg.bin").read_bytes()) == 16 * 8 * 3 // 2
    Path("DebugConfig.txt").write_text(re.search(r"printf '(.*)'", PAGE.read_text())[1].replace("\\n", "\n"))
    assert main(shlex.split(commands[1])) == 0
    stored = outputs_of(Path("sigma_outtensor_dump.bin"))["prob"].stored
    Path("board_prob.bin").write_bytes(aligned(stored).tobytes())
    capsys.readouterr()
    assert main(shlex.split(commands[2])) == 0
    assert "identical" in capsys.readouterr().out


def test_a_float_model_has_no_raw_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = model([conv("prob", "data")], weights("prob", (6, 3, 3, 3)), {"data": (1, 3, 8, 12)}, ["prob"])
    onnx.save(net.proto, "net.onnx")
    assert main("simulate -m net.onnx -t Float -i random --dump-rawdata".split()) == 2
    assert "use -t Fixed" in capsys.readouterr().err
