"""Models that only their own framework runs: every tensor is the framework's own, and a crash is one line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT (the extra tflite) is not installed")

import tflite_models

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.executors.native.litert import LiteRt
from sgsdump.executors.native.runner import NativeRunner
from sgsdump.executors.table import open_runner
from sgsdump.models.model import open_model
from sgsdump.pipeline.pipeline import Pipeline

PAIRS = (
    ("ad01_fp32", "ad01_int8"),
    ("kws_ref_model_float32", "kws_ref_model"),
    ("pretrainedResnet", "pretrainedResnet_quant"),
    ("vww_96_float", "vww_96_int8"),
)


def real(stored: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    return stored if not scale else (stored.astype(np.float32) - np.float32(zero_point)) * np.float32(scale)


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_every_tensor_is_the_interpreters(tmp_path: Path, kind: str) -> None:
    for path in tflite_models.pair(tmp_path, kind):
        model = open_model(path, native=True)
        (name,) = (info.name for info in model.proto.graph.input)
        given = {layer.name: layer for layer in NativeRunner(model).run({name: tflite_models.picture()})}
        told = tflite_models.interpreted(path, tflite_models.picture())
        assert [*given] == [*told]
        for name, (stored, scale, zero_point) in told.items():
            np.testing.assert_array_equal(given[name].array, stored)
            assert given[name].array.dtype == stored.dtype
            quant = model.native.quants.get(name)
            assert ((quant.scale, quant.zero_point) if quant else (0.0, 0)) == (pytest.approx(scale), zero_point)


def test_codes_go_in_as_they_are(tmp_path: Path) -> None:
    model = open_model(tflite_models.pair(tmp_path)[1], native=True)
    quant, x = model.native.quants["x_int8"], tflite_models.picture()
    codes = np.clip(np.rint(x.astype(np.float64) / quant.scale) + quant.zero_point, -128, 127).astype(np.int8)
    runner = NativeRunner(model)
    for mine, theirs in zip(runner.run({"x_int8": codes}), [*runner.run({"x_int8": x})], strict=True):
        np.testing.assert_array_equal(mine.array, theirs.array)
    with pytest.raises(InputError, match="int16"):
        next(runner.run({"x_int8": codes.astype(np.int16)}))


def test_a_tensor_without_axes_is_a_number() -> None:
    """LiteRT gives numpy's scalars for these; text is refused."""
    runtime = object.__new__(LiteRt)
    runtime._interpreter = SimpleNamespace(get_tensor=[np.float32(3.5), np.bool_(True), np.bytes_(b"text")].__getitem__)
    value = runtime.value((0,))
    assert isinstance(value, np.ndarray) and (value.shape, value.dtype, float(value)) == ((), np.float32, 3.5)
    assert runtime.value((1,)).dtype == bool
    with pytest.raises(ModelError, match="not numbers"):
        runtime.value((2,))


def test_a_process_that_ends_is_one_line(tmp_path: Path) -> None:
    runner = NativeRunner(open_model(tflite_models.pair(tmp_path)[0], native=True))
    runner._process._process.kill()
    with pytest.raises(ModelError, match=r"float\.tflite: TFLite crashed \(status -?\d+\)"):
        next(runner.run({"x": tflite_models.picture()}))


def test_a_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="omit --provider"):
        open_runner(open_model(tflite_models.pair(tmp_path)[0], native=True), provider="CUDA")


def test_dump_and_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", tflite_models.picture())
    for path in tflite_models.pair(tmp_path):
        assert main(["dump", "-m", path.name, "-i", "x.npy", "-o", f"{path.stem}.bin"]) == 0
        name = "x" if path.stem == "float" else "x_int8"
        assert main(["pipeline", "full", "-m", path.name, "-i", f"{name}:x.npy", "-o", path.stem]) == 0
        told = tflite_models.interpreted(path, tflite_models.picture())
        for dump in (open_dump(f"{path.stem}.bin"), open_dump(path.stem)):
            assert [*dump.outputs] == [*told]
            for name, (stored, scale, zero_point) in told.items():
                np.testing.assert_array_equal(dump[name].real(), real(stored, scale, zero_point))
                assert dump[name].layout == ("NHWC" if stored.ndim == 4 else None)
        codes = open_dump(path.stem)
        assert all(codes[name].dtype == stored.dtype for name, (stored, *_) in told.items())
        np.testing.assert_array_equal(codes["Identity" if path.stem == "float" else "Identity_int8"].stored(), stored)
    capsys.readouterr()
    assert main(["compare", "int8", "float"]) == 0
    said = capsys.readouterr().out
    assert "Compared: 5 of 5 layers" in said
    assert "paired by module and operator with 'Identity_int8' of the sample" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-f", "ort"], ", and only as a whole; leave -f out"),
        (["--mode", "isolated"], "--mode isolated: "),
        (["-mt", "float16"], "-mt: "),
        (["--option", "threads=1"], "--option: "),
        (["--provider", "CUDA"], "--provider: "),
    ],
)
def test_what_cannot_be_asked_of_a_whole_model(tmp_path: Path, words: list[str], why: str, capsys) -> None:
    path = tflite_models.pair(tmp_path)[0]
    assert main(["pipeline", "full", "-m", str(path), "-o", str(tmp_path / "out"), *words]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_litert_one_line_names_the_extra(tmp_path: Path, monkeypatch, capsys) -> None:
    path = tflite_models.pair(tmp_path)[0]
    (tmp_path / "ai_edge_litert").mkdir()
    (tmp_path / "ai_edge_litert" / "__init__.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    np.save(tmp_path / "x.npy", tflite_models.picture())
    assert main(["dump", "-m", str(path), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "out.bin")]) == 2
    assert "pip install 'sgsdump[tflite]'" in capsys.readouterr().err
    assert not (tmp_path / "out.bin").exists()


@pytest.mark.parametrize(("benchmark", "sample"), PAIRS)
def test_public_pairs_pair_wholly(shared, tmp_path: Path, benchmark: str, sample: str) -> None:
    """Against the interpreter's own word, dequantised by its own scales."""
    from sgsdump import compare

    folder, dumps, told = shared / "mlperf_tiny", [], []
    for name in (sample, benchmark):
        model = open_model(folder / f"{name}.tflite", native=True)
        shape = [dim.dim_value or 1 for dim in model.proto.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(0).random(shape).astype(np.float32)
        pipeline = Pipeline(model, dump_info=tmp_path / name)
        pipeline.set_input_data(None, {model.proto.graph.input[0].name: x})
        pipeline.dump_full()
        dumps.append(open_dump(tmp_path / name))
        told.append(tflite_models.interpreted(folder / f"{name}.tflite", x))
    comparison = compare(*dumps)
    assert len(comparison.rows) == len(told[1])
    assert not (comparison.only_in_sample or comparison.only_in_benchmark or comparison.failed)
    for row in comparison.rows:
        ours = real(*told[0][row.sample_name]).astype(np.float64)
        theirs = told[1][row.name][0].astype(np.float64)
        assert row.sums.dd == pytest.approx(float(((ours - theirs) ** 2).sum()), rel=1e-6)
    assert dict(zip(told[0], told[1])) == {row.sample_name: row.name for row in comparison.rows}
