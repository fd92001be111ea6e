"""Whether two dumps are of one input: equal values, another scale, another layout, another image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import sgsdump
from sgsdump.cli import main
from sgsdump.dumps import run_inputs
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Quant, Tensor


def smooth(seed, size=24):
    """An image as cameras give it: large shapes, a little noise."""
    rng = np.random.default_rng(seed)
    rough = Image.fromarray(rng.integers(0, 256, (4, 4, 3)).astype(np.uint8)).resize((size, size), Image.BICUBIC)
    return np.clip(np.asarray(rough, np.float32) + rng.normal(0, 4, (size, size, 3)), 0, 255).round()


def likeness(a, b):
    return run_inputs.sketch_of(a).likeness(run_inputs.sketch_of(b))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_one_image_is_alike_in_any_form(seed):
    image = smooth(seed)
    normal = (image - np.float32([123.7, 116.3, 103.5])) / np.float32([58.4, 57.1, 57.4])
    assert likeness(image, image) == 1.0
    for same in (normal, np.round(normal / 0.02) * 0.02, image.transpose(2, 0, 1), image[::-1] / 255):
        assert likeness(image, same) >= run_inputs.ALIKE


def test_another_image_is_not_alike():
    """About one pair in 3,000 has quantiles so similar that the sketches cannot distinguish its images."""
    pairs = [(smooth(seed), smooth(seed + 1)) for seed in range(200)]
    assert sum(likeness(*pair) >= run_inputs.ALIKE for pair in pairs) <= 1


def test_what_cannot_be_told_accuses_nothing():
    image = smooth(1)
    for other in (image[:12], np.zeros_like(image), np.full_like(image, np.nan)):
        assert not likeness(image, other) < run_inputs.ALIKE
    assert run_inputs.from_json({"x": {"checksum": "a", "count": 3, "means": [1], "quantiles": []}, "y": 1}) == {}
    sketch = run_inputs.sketch_of(image)
    assert run_inputs.from_json(run_inputs.as_json({"x": sketch})) == {"x": sketch}


def runs(image, factor=1.0):
    layers = {f"conv{i}": np.tanh(image[None] / 255 * (i + 1)).astype(np.float32) * factor for i in range(3)}
    data = Tensor.of("data", image[None].astype(np.float32), layout="NHWC")
    records = [Record("in", 0, 0, "Conv", data)]
    return Dump([*records, *(Record("out", 0, i, "Conv", Tensor.of(n, v)) for i, (n, v) in enumerate(layers.items()))])


def test_no_cause_is_sought_between_runs_of_different_images():
    other = sgsdump.compare(runs(smooth(1)), runs(smooth(2)))
    [finding] = other.environment
    assert (finding.layer, finding.facts["what"]) == ("data", "inputs") and not other.passes()

    assert not {f.kind for f in other.findings()} & {"cause", "another tensor", "channel"}
    same = sgsdump.compare(runs(smooth(1), 1.5), runs(smooth(1)))
    assert not same.environment and {"cause"} <= {f.kind for f in same.findings()}


@pytest.fixture
def dumped(tmp_path, monkeypatch):
    """Two images through one network, ``0.bin`` and ``1.bin`` by ``sgsdump dump``."""
    from small_nets import conv, model, node, weights

    monkeypatch.chdir(tmp_path)
    nodes = [conv("c", "data", pads=[1, 1, 1, 1]), node("Relu", ["c"], "r"), conv("out", "r", pads=[1, 1, 1, 1])]
    proto = model(
        nodes, weights("c", (4, 3, 3, 3)) | weights("out", (4, 4, 3, 3), 1), {"data": (1, 3, 24, 24)}, ["out"]
    )
    (tmp_path / "net.onnx").write_bytes(proto.proto.SerializeToString())
    for number in range(2):
        np.save(f"{number}.npy", (smooth(number) / 128 - 1).transpose(2, 0, 1)[None].astype(np.float32))
        assert main(["dump", "-m", "net.onnx", "-i", f"{number}.npy", "-o", f"{number}.bin"]) == 0
    return tmp_path


def test_dump_keeps_what_it_was_fed(dumped, capsys):
    capsys.readouterr()
    assert main(["compare", "0.bin", "1.bin", "--max-rmse", "0.1"]) == 1
    out = capsys.readouterr().out
    assert "from different inputs (correlation of input data: " in out
    assert "arises" not in out and "another order" not in out and "First" not in out
    assert "channel" not in out, "no layer is accused of lost channels"
    assert main(["compare", "0.bin", "1.bin", "--fail-on", "cause"]) == 1
    assert main(["compare", "0.bin", "0.bin", "--fail-on", "cause"]) == 0
    capsys.readouterr()
    assert main(["convert", "1.bin", "1.npz"]) == 0 and main(["compare", "0.bin", "1.npz"]) == 0
    assert "from different inputs (correlation of input data: " in capsys.readouterr().out
    assert main(["compare", "0.bin", "0.bin"]) == 0
    assert "Sample and benchmark are the same file: 0.bin." in capsys.readouterr().out.splitlines()


def test_a_fixed_benchmark_and_a_float_sample_may_be_swapped():
    values = smooth(3)[None].astype(np.float32)
    quant = Quant(np.dtype(np.uint8), 1.0, 0, exact=True)
    fixed = Dump([Record("out", 0, 0, "Conv", Tensor.of("x", values.astype(np.uint8), quant=quant))])
    plain = Dump([Record("out", 0, 0, "Conv", Tensor.of("x", values))])
    assert [f.facts["what"] for f in sgsdump.compare(plain, fixed).environment] == ["swapped"]
    assert not sgsdump.compare(fixed, plain).environment


def test_a_layer_that_both_sides_fused_away_is_no_input():
    """What a later operator reads, and no record makes, may be off by a fault before it."""
    image = smooth(4)[None].astype(np.float32)

    def run(inner):
        tensors = {"data": image, "a": image / 9, "hidden": inner, "b": inner * 2}
        named = {name: Tensor.of(name, value.astype(np.float32)) for name, value in tensors.items()}
        places = [("in", 0, "data"), ("out", 0, "a"), ("in", 1, "hidden"), ("out", 1, "b")]
        return Dump([Record(io, 0, index, "Conv", named[name]) for io, index, name in places])

    rng = np.random.default_rng(0)
    comparison = sgsdump.compare(run(rng.standard_normal(image.shape)), run(rng.standard_normal(image.shape)))
    assert comparison["b"].rmse > 0.5 and comparison.other_input is None
