from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_nets import model as net
from small_nets import node, residual_net, run_all

from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.executors.conformance import ExecutorConformance, assert_raises, small_feed, small_model, small_outputs
from sgsdump.executors.table import open_executor
from sgsdump.executors.tvm import TvmExecutor
from sgsdump.models.passes.rewrites import mark_outputs

pytest.importorskip("tvm", reason="Apache TVM (the extra tvm) is not installed")


class TestConformance(ExecutorConformance):
    def make(self) -> TvmExecutor:
        return TvmExecutor()


def test_every_tensor_of_a_small_net() -> None:
    proto = residual_net().proto
    feed = {"data": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    wanted = run_all(proto, feed)
    with open_executor("tvm") as executor:
        executor.load_model(mark_outputs(proto, wanted))
        for name, array in zip(wanted, executor.execute(list(wanted), feed)):
            assert array.shape == wanted[name].shape
            np.testing.assert_allclose(array, wanted[name], rtol=0, atol=1e-5 * np.abs(wanted[name]).max())


def test_shapes_come_as_integers() -> None:
    proto = net([node("Shape", ["x"], "s"), node("Relu", ["x"], "y")], {}, {"x": (2, 5)}, ["s", "y"]).proto
    proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="s"))
    with open_executor("tvm") as executor:
        executor.load_model(proto)
        (shape,) = executor.execute(["s"], {"x": np.zeros((2, 5), np.float32)})
    assert (shape.tolist(), shape.dtype) == ([2, 5], np.int64)


def test_bfloat16_stays_bfloat16() -> None:
    proto = net([node("Cast", ["x"], "y", to=TensorProto.BFLOAT16)], {}, {"x": (2,)}, ["y"]).proto
    proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    with open_executor("tvm") as executor:
        executor.load_model(proto)
        (y,) = executor.execute(["y"], {"x": np.array([1.1, 3], np.float32)})
    assert y.dtype == helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    np.testing.assert_array_equal(y.astype(np.float32), np.array([1.1015625, 3], np.float32))


def test_ir_text() -> None:
    with open_executor("tvm") as executor:
        assert_raises(ModelError, "ir_text", executor.ir_text)
        executor.load_model(small_model(["scores"]))
        text = executor.ir_text()
    assert (
        "R.nn.conv2d(" in text and "padding=[1, 1, 1, 1]" in text and 'R.Tensor((1, 4, 4, 6), dtype="float32")' in text
    )
    assert text.index("R.nn.conv2d") < text.index("R.nn.relu") < text.index("R.matmul")


PASSES = {
    "two arguments": (
        "def use_passes(ir_module, configs):\n    assert configs['target'] == 'llvm'\n    return PASSES(ir_module)\n"
    ),
    "one argument": "def use_passes(ir_module):\n    return PASSES(ir_module)\n",
}


@pytest.mark.parametrize("text", PASSES.values(), ids=PASSES)
def test_passes_of_the_users_own(tmp_path: Path, text: str) -> None:
    """After fusing, the printed module has no operators left but calls of fused functions; the values stay."""
    passes = "[relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps()]"
    file = tmp_path / "passes.py"
    head = f"import tvm\nfrom tvm import relax\nPASSES = tvm.transform.Sequential({passes})\n"
    file.write_text(head + text)
    with open_executor("tvm", {"passes": str(file), "target": "llvm"}) as executor:
        executor.load_model(small_model(["scores"]))
        assert "fused_conv2d" in executor.ir_text() and "R.nn.conv2d" not in executor.ir_text()
        (scores,) = executor.execute(["scores"], small_feed())
    np.testing.assert_allclose(scores, small_outputs(small_feed())["scores"], rtol=1e-4)


def test_passes_that_fail_are_told(tmp_path: Path) -> None:
    file = tmp_path / "passes.py"
    assert_raises(ConfigError, "passes file", lambda: open_executor("tvm", {"passes": str(file)}))
    file.write_text("def other(): pass\n")
    assert_raises(ConfigError, "no function use_passes", lambda: open_executor("tvm", {"passes": str(file)}))
    file.write_text("from tvm import relay\n")
    assert_raises(
        InputError, "passes.py:1: the passes failed: ImportError", lambda: open_executor("tvm", {"passes": str(file)})
    )
    for body, kind, said in (("1 / 0", InputError, "passes.py:2"), ("return 5", ConfigError, "gave a int")):
        file.write_text(f"def use_passes(ir_module, configs):\n    {body}\n")
        with open_executor("tvm", {"passes": str(file)}) as executor:
            assert_raises(kind, said, lambda executor=executor: executor.load_model(small_model()))


def test_an_unknown_target() -> None:
    assert_raises(ConfigError, "nonsense", lambda: open_executor("tvm", {"target": "nonsense"}))


def test_the_importer_prints_nothing_and_its_operator_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    proto = net([node("Relu", ["x"], "r")], {}, {"x": (1, 2)}, ["y"]).proto
    proto.graph.node.append(helper.make_node("MatMul", ["r", "r"], ["y"], "times"))
    with open_executor("tvm") as executor:
        assert_raises(ModelError, "operator MatMul", lambda: executor.load_model(proto))
    assert capsys.readouterr().out == ""
