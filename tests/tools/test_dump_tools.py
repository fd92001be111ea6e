"""tools/dump_tools.py run as the SDAA tool's README (seed 000) shows it, from a work folder of the user's."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from in_process import script
from small_nets import residual_net

TOOL = Path(__file__).resolve().parents[2] / "tools" / "dump_tools.py"
SIX_LINES = """\
topology index 12, output relu_1.tmp_0, shape (1, 8, 12, 96), dtype float16
topology index 22, output batch_norm_4.tmp_3, shape (1, 24, 12, 96), dtype float16
topology index 32, output depthwise_conv2d_2.tmp_0, shape (1, 32, 6, 96), dtype float16
topology index 42, output p2o.Mul.5, shape (1, 32, 6, 96), dtype float16
topology index 52, output relu_7.tmp_0, shape (1, 8, 1, 1), dtype float16
topology index 54, output hardsigmoid_1.tmp_0, shape (1, 32, 1, 1), dtype float16
"""
NUMBER = r"(\d+(\.\d+)?(e-?\d+)?|inf|nan)"
TWO_WAY = rf"index: 0 \| {{file}} \| nan_inf: False \| diff2: {NUMBER} \| all_close: (True|False) \| th: 1e-06"
THREE_WAY = (
    rf"index: 0 \| {{file}} \| nan_inf: False \| diff2: {NUMBER} \| diff3_max=(pass|fail) \| diff3_mean=(pass|fail) "
    rf"\| diff3_max_sw: {NUMBER} \| diff3_max_g: {NUMBER}\*{{tag}}={NUMBER} "
    rf"\| diff3_mean_sw: {NUMBER} \| diff3_mean_g: {NUMBER}\*{{tag}}={NUMBER}"
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The user's folder: net.onnx (tensors c1 r1 c2 add r2 pool c3 sig gap flat fc prob)."""
    onnx.save(residual_net().proto, tmp_path / "net.onnx")
    return tmp_path


def tool(work: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return script(TOOL, list(map(str, words)), work, os.environ)


def as_a_program(work: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(TOOL.parents[1])}
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=300)


def succeeds(work: Path, *words: object) -> str:
    done = tool(work, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def topology_lines(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("topology index"))


def pattern(of: str, file: str, tag: str = "") -> str:
    return of.format(file=re.escape(file), tag=re.escape(tag))


def test_the_six_lines_of_the_seed(tmp_path: Path, shared: Path) -> None:
    model = shared / "sdaa/model_sample.onnx"
    words = ["dump_range", "-f", "ort", "-d", model, "-bs", "relu_1.tmp_0", "-s", "10"]
    printed = as_a_program(tmp_path, *words).stdout
    assert topology_lines(printed) == SIX_LINES
    assert 'input "eager_tmp_0", shape [1, 3, 48, 192], dtype float32\n' in printed
    files = sorted(path.name for path in (tmp_path / "ort_dump/outputs").iterdir())
    assert files == [
        f"topoidx_{int(line.split()[2][:-1]):05}__{line.split()[4][:-1]}.npy" for line in SIX_LINES.splitlines()
    ]
    assert not list(tmp_path.glob("compare_result*"))
    # the same inputs as the seed's tool draws
    drawn = np.random.default_rng(seed=42).uniform(0, 1, (1, 3, 48, 192)).astype(np.float32)
    assert np.array_equal(np.load(tmp_path / "ort_dump/inputs/eager_tmp_0.npy"), drawn)


def test_dump_once_and_both_comparisons_on_the_seed_s_model(tmp_path: Path, shared: Path) -> None:
    model = shared / "sdaa/model_sample.onnx"
    succeeds(tmp_path, "dump_once", "-f", "ort", "-d", model, "-n", "relu_3.tmp_0")
    (tmp_path / "ort_dump").rename(tmp_path / "half")
    words = ["dump_once", "-f", "ort", "-d", model, "-n", "relu_3.tmp_0", "-cd", "half/outputs"]
    printed = succeeds(tmp_path, *words)
    assert "\noutput relu_3.tmp_0, shape (1, 24, 12, 96), dtype float16\n" in printed
    assert "index: 0 | relu_3.tmp_0.npy | nan_inf: False | diff2: 0.0 | all_close: True | th: 1e-06\n" in printed
    printed = succeeds(tmp_path, *words, "-g", "half/outputs", "-t", "10", "-t1", "0.02")
    assert (
        "index: 0 | relu_3.tmp_0.npy | nan_inf: False | diff2: 0.0 | diff3_max=pass | diff3_mean=pass | "
        "diff3_max_sw: 0.0 | diff3_max_g: 0.0*10.0=0.0 | diff3_mean_sw: 0.0 | diff3_mean_g: 0.0*10.0=0.0\n"
    ) in printed


def test_dump_range_on_a_small_net(work: Path) -> None:
    lines = topology_lines(succeeds(work, "dump_range", "-f", "ort", "-d", "net.onnx", "-bs", "r1", "-s", "4"))
    assert lines == (
        "topology index 1, output r1, shape (1, 8, 8, 8), dtype float32\n"
        "topology index 5, output pool, shape (1, 8, 4, 4), dtype float32\n"
        "topology index 9, output flat, shape (1, 6), dtype float32\n"
        "topology index 11, output prob, shape (1, 5), dtype float32\n"
    )


@pytest.mark.parametrize(
    ("words", "indices"),
    [
        (["-b", "9"], [9, 10, 11]),
        (["-e", "2"], [0, 1, 2]),
        (["-b", "0", "-e", "0"], [0]),
        (["-b", "1", "-es", "add"], [1, 2, 3]),
        (["-b", "1", "-e", "10", "-s", "4"], [1, 5, 9, 10]),
    ],
)
def test_every_way_to_say_begin_and_end(work: Path, words: list[str], indices: list[int]) -> None:
    """Of these the seed's own tool takes only those with two non-zero ends."""
    printed = succeeds(work, "dump_range", "-f", "ort", "-d", "net.onnx", *words)
    assert [int(index) for index in re.findall(r"^topology index (\d+)", printed, re.MULTILINE)] == indices


def test_dump_full_and_two_way_comparison(work: Path) -> None:
    succeeds(work, "dump_full", "-f", "ort", "-d", "net.onnx")
    (work / "ort_dump").rename(work / "before")
    np.save(work / "before/outputs/topoidx_00012__gone.npy", np.zeros(1))
    printed = succeeds(work, "dump_full", "-f", "ort", "-d", "net.onnx", "-s", "5", "-cd", "before/outputs")
    lines = [line for line in printed.splitlines() if line.startswith("index:")]
    assert re.fullmatch(pattern(TWO_WAY, "topoidx_00000__c1.npy"), lines[0])
    assert len(lines) == 4 and all("all_close: True" in line for line in lines)
    log = (work / "compare_result.log").read_text().splitlines()
    assert log[:4] == lines
    assert log[4].startswith("Common files with differences: {'topoidx_00000__c1.npy'")
    assert "Files only in before/outputs: {" in (work / "compare_result.log").read_text()
    rows = list(csv.DictReader((work / "compare_result.csv").read_text().splitlines()))
    assert [row["verdict"] for row in rows if row["index"]] == ["pass"] * 4
    assert len(json.loads((work / "compare_result.json").read_text())["rows"]) == 4


def test_three_way_comparison_of_a_float16_run(work: Path) -> None:
    succeeds(work, "dump_full", "-f", "ort", "-d", "net.onnx")
    (work / "ort_dump").rename(work / "golden")
    half = topology_lines(succeeds(work, "dump_full", "-f", "ort", "-d", "net.onnx", "-mt", "float16"))
    assert "output c1, shape (1, 8, 8, 8), dtype float16\n" in half
    (work / "ort_dump").rename(work / "half")
    words = ["-f", "reference", "-d", "net.onnx", "-mt", "float16", "-cd", "half/outputs", "-g", "golden/outputs"]
    printed = succeeds(work, "dump_full", *words, "-t", "5", "-t1", "0.02")
    lines = [line for line in printed.splitlines() if line.startswith("index:")]
    assert len(lines) >= 12
    assert re.fullmatch(pattern(THREE_WAY, lines[0].split(" | ")[1], "5.0"), lines[0])
    for line in lines:
        golden, tag, product = re.search(r"diff3_max_g: ([^*]*)\*([^=]*)=(\S*)", line).groups()
        assert float(golden) * float(tag) == float(product)
        passes = float(re.search(r"diff3_max_sw: (\S*)", line)[1]) <= float(product)
        assert f"diff3_max={'pass' if passes else 'fail'}" in line
    assert (work / "reference_dump/dump_info.json").is_file()


def test_a_stale_file_is_not_compared(work: Path) -> None:
    succeeds(work, "dump_full", "-f", "ort", "-d", "net.onnx")
    (work / "ort_dump").rename(work / "all")
    succeeds(work, "dump_full", "-f", "ort", "-d", "net.onnx")
    printed = succeeds(work, "dump_once", "-f", "ort", "-d", "net.onnx", "-n", "add", "-cd", "all/outputs")
    assert [line.split(" | ")[1] for line in printed.splitlines() if line.startswith("index:")] == ["add.npy"]


def test_dump_list_and_a_given_input(work: Path) -> None:
    given = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    np.save(work / "x.npy", given)
    words = ["dump_list", "-f", "ort", "-d", "net.onnx", "-n", "pool", "c1", "-i", "data:x.npy"]
    lines = topology_lines(succeeds(work, *words))
    assert re.findall(r"^topology index (\d+), output (\S+),", lines, re.MULTILINE) == [("0", "c1"), ("5", "pool")]
    assert sorted(path.name for path in (work / "ort_dump/outputs").iterdir()) == [
        "topoidx_00000__c1.npy",
        "topoidx_00005__pool.npy",
    ]
    assert np.array_equal(np.load(work / "ort_dump/inputs/data.npy"), given)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dump_once", "-n", "c11"], "no tensor 'c11'; did you mean 'c1'"),
        (["dump_range", "-b", "5", "-e", "2"], "comes after the end"),
        (["dump_full", "-s", "0"], "the step is 0"),
        (["dump_full", "-i", "data:absent.npy"], "no such input file: absent.npy"),
        (["dump_full", "-cd", "absent"], "does not exist: absent"),
        (["dump_full", "-g", "absent"], "-cd"),
    ],
)
def test_trouble_is_one_line(work: Path, words: list[str], said: str) -> None:
    done = tool(work, words[0], "-f", "ort", "-d", "net.onnx", *words[1:])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and said in done.stderr, done.stderr
    assert done.stderr.startswith("dump_tools.py: error: ")
    assert sorted(path.name for path in work.iterdir()) == ["net.onnx"]


def test_the_vendor_s_back_end_says_what_it_needs(work: Path) -> None:
    done = tool(work, "dump_full", "-f", "sdaa", "-d", "net.onnx")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "sdaa" in done.stderr
