"""Conformance tests that every executor must pass; the author of a plug-in runs them with pytest.

::

    from sgsdump.executors.conformance import ExecutorConformance

    class TestMine(ExecutorConformance):
        def make(self):
            return MyExecutor()

The test model is small: a convolution, a branch, a matrix product, an integer path and a boolean path. Expected values
come from numpy.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sgsdump.errors import ConfigError, InputError, ModelError, SgsdumpError
from sgsdump.executors.base import Executor

__all__ = ["ExecutorConformance", "assert_raises", "other_model", "small_feed", "small_model", "small_outputs"]

Feed = dict[str, np.ndarray]
FLOAT = TensorProto.FLOAT
# In graph order; the names include characters that exporters use.
OUTPUTS = ["block/conv.1", "relu:0", "pooled", "flat", "scores", "best", "picked", "not keep"]


class ExecutorConformance:
    """Test class; subclass it with a ``make`` method that returns a new, uninitialised executor.

    Attributes
    ----------
    tolerance : float
        Largest allowed |difference| from numpy, as a fraction of the largest |value| of the tensor.
    configs : Mapping[str, Any] or None
        Options for ``init``.
    any_batch : bool
        Set to False for a back-end that does not support a free batch size.
    """

    tolerance = 1e-5
    configs: Mapping[str, Any] | None = None
    any_batch = True

    @abstractmethod
    def make(self) -> Executor:
        """Return a new executor that is not initialised."""

    def open(self) -> AbstractContextManager[Executor]:
        """Return the initialised executor that the tests use."""
        executor = self.make()
        executor.init(self.configs)
        return executor

    def check(self, arrays: list[np.ndarray], names: list[str], expected: Mapping[str, np.ndarray]) -> None:
        assert len(arrays) == len(names)
        for name, array in zip(names, arrays):
            assert isinstance(array, np.ndarray), name
            assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape), name
            if expected[name].dtype.kind != "f":
                np.testing.assert_array_equal(array, expected[name], err_msg=name)
                continue
            largest = np.abs(expected[name]).max()
            np.testing.assert_allclose(array, expected[name], rtol=0, atol=self.tolerance * largest, err_msg=name)

    # Values match the model, whatever the executor ran before.

    def test_outputs_have_the_models_names_shapes_types_and_values(self) -> None:
        with self.open() as executor:
            executor.load_model(small_model())
            self.check(executor.execute(OUTPUTS, small_feed()), OUTPUTS, small_outputs(small_feed()))

    def test_outputs_come_in_the_order_asked_for(self) -> None:
        expected = small_outputs(small_feed())
        with self.open() as executor:
            executor.load_model(small_model())
            for names in (OUTPUTS[::-1], ["scores"], ["not keep", "block/conv.1"], ["best"]):
                self.check(executor.execute(names, small_feed()), names, expected)

    def test_a_model_with_one_output(self) -> None:
        for name in ("relu:0", "scores", "best"):
            with self.open() as executor:
                executor.load_model(small_model([name]))
                self.check(executor.execute([name], small_feed()), [name], small_outputs(small_feed()))

    def test_feeds_one_after_another(self) -> None:
        """Check that each run returns its own values, and that arrays of an earlier run do not change."""
        with self.open() as executor:
            executor.load_model(small_model())
            kept = [executor.execute(OUTPUTS, small_feed(seed)) for seed in range(3)]
            executor.load_model(small_model(["scores"]))
        for seed, arrays in enumerate(kept):
            self.check(arrays, OUTPUTS, small_outputs(small_feed(seed)))

    def test_the_same_feed_gives_the_same_bytes(self) -> None:
        with self.open() as executor:
            executor.load_model(small_model())
            first, second = (executor.execute(OUTPUTS, small_feed()) for _ in range(2))
        assert [array.tobytes() for array in first] == [array.tobytes() for array in second]

    def test_two_models_after_each_other(self) -> None:
        other, feed = other_model(), {"a": np.array([[1.5, -2.0]], np.float32)}
        with self.open() as executor:
            executor.load_model(small_model())
            executor.execute(["scores"], small_feed())
            executor.load_model(other)
            self.check(executor.execute(["b"], feed), ["b"], {"b": feed["a"] * 2})
            assert_raises(ModelError, "scores", lambda: executor.execute(["scores"], feed))
            executor.load_model(small_model())
            self.check(executor.execute(["scores"], small_feed()), ["scores"], small_outputs(small_feed()))

    def test_a_free_batch_size(self) -> None:
        if not self.any_batch:
            return
        with self.open() as executor:
            executor.load_model(small_model(batch="N"))
            for batch in (1, 3):
                feed = small_feed(batch=batch)
                self.check(executor.execute(OUTPUTS, feed), OUTPUTS, small_outputs(feed))

    def test_nothing_of_the_callers_is_changed(self) -> None:
        model, feed = small_model(), small_feed()
        before = model.SerializeToString(), {name: array.copy() for name, array in feed.items()}
        for array in feed.values():
            array.flags.writeable = False
        with self.open() as executor:
            executor.load_model(model)
            executor.execute(OUTPUTS, feed)
        assert model.SerializeToString() == before[0]
        for name, array in feed.items():
            np.testing.assert_array_equal(array, before[1][name])

    def test_arrays_not_in_c_order(self) -> None:
        feed = small_feed()
        turned = {name: np.asfortranarray(array) for name, array in feed.items()}
        with self.open() as executor:
            executor.load_model(small_model())
            self.check(executor.execute(OUTPUTS, turned), OUTPUTS, small_outputs(feed))

    def test_nan_and_inf_go_through(self) -> None:
        feed = {"a": np.array([[np.nan, np.inf, -np.inf, 1]], np.float32)}
        with self.open() as executor:
            executor.load_model(other_model(4))
            (array,) = executor.execute(["b"], feed)
        np.testing.assert_array_equal(array, feed["a"] + feed["a"])

    def test_external_data(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            model = small_model()
            onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
            bare = onnx.load(path, load_external_data=False)
            with self.open() as executor:
                executor.load_model(bare, folder=folder)
                arrays = executor.execute(OUTPUTS, small_feed())
        self.check(arrays, OUTPUTS, small_outputs(small_feed()))

    # The order is init, load, run, release, also after an error.

    def test_calls_out_of_order_are_refused(self) -> None:
        executor = self.make()
        feed = small_feed()
        assert_raises(ConfigError, "load_model", lambda: executor.load_model(small_model()))
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, feed))
        executor.release()
        executor.init(self.configs)
        assert_raises(ConfigError, "init", lambda: executor.init(self.configs))
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, feed))
        executor.load_model(small_model())
        executor.execute(OUTPUTS, feed)
        executor.release()
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, feed))
        assert_raises(ConfigError, "load_model", lambda: executor.load_model(small_model()))

    def test_release_can_be_called_twice_and_init_may_follow(self) -> None:
        executor = self.make()
        for _ in range(2):
            executor.init(self.configs)
            executor.load_model(small_model())
            self.check(executor.execute(["scores"], small_feed()), ["scores"], small_outputs(small_feed()))
            executor.release()
            executor.release()

    def test_a_failure_releases(self) -> None:
        """Check that an error within the ``with`` block releases the executor exactly once."""
        executor = self.make()
        released = []
        original = executor.on_release

        def counted() -> None:
            released.append(1)
            original()

        executor.on_release = counted  # type: ignore[method-assign]
        executor.init(self.configs)

        def fail() -> None:
            with executor:
                executor.load_model(small_model())
                executor.execute(["nothing of the kind"], small_feed())

        assert_raises(ModelError, "nothing of the kind", fail)
        executor.release()
        assert released == [1]
        assert_raises(ConfigError, "execute", lambda: executor.execute(OUTPUTS, small_feed()))

    # A wrong feed, name, option or model raises an error of one line, and later calls still work.

    def test_wrong_feeds_are_refused_and_do_no_harm(self) -> None:
        feed = small_feed()
        wrong = {
            "'keep'": {name: array for name, array in feed.items() if name != "keep"},
            "'kept'": {**feed, "kept": feed["keep"]},
            "float64": {**feed, "x/in": feed["x/in"].astype(np.float64)},
            "[1, 3, 4, 5]": {**feed, "x/in": feed["x/in"][:, :, :, :-1]},
            "[3, 4, 6]": {**feed, "x/in": feed["x/in"][0]},
        }
        with self.open() as executor:
            executor.load_model(small_model())
            for words, bad_feed in wrong.items():
                assert_raises(InputError, words, lambda bad_feed=bad_feed: executor.execute(OUTPUTS, bad_feed))  # type: ignore[misc]
            self.check(executor.execute(OUTPUTS, feed), OUTPUTS, small_outputs(feed))

    def test_an_unknown_output_is_reported_with_the_nearest(self) -> None:
        with self.open() as executor:
            executor.load_model(small_model())
            assert_raises(ModelError, "'scores'", lambda: executor.execute(["score"], small_feed()))

    def test_an_unknown_option_is_refused(self) -> None:
        executor = self.make()
        assert_raises(ConfigError, "no_such_option", lambda: executor.init({"no_such_option": 1}))
        executor.init(self.configs)
        assert_raises(ConfigError, "no_such_option", lambda: executor.load_model(small_model(), {"no_such_option": 1}))
        executor.load_model(small_model())
        assert_raises(
            ConfigError, "no_such_option", lambda: executor.execute(["best"], small_feed(), {"no_such_option": 1})
        )
        executor.release()

    def test_a_model_that_cannot_run_is_reported_and_does_no_harm(self) -> None:
        """Check that loading or running raises an error of one line that names the executor."""

        def run(executor: Executor, model: onnx.ModelProto) -> None:
            executor.load_model(model)
            executor.execute(["b"], {"a": np.ones((1, 2), np.float32)})

        with self.open() as executor:
            for model in (broken_model("NoSuchOperator"), broken_model("MatMul")):
                assert_raises(ModelError, executor.name, lambda model=model: run(executor, model))  # type: ignore[misc]
            executor.load_model(small_model())
            self.check(executor.execute(["scores"], small_feed()), ["scores"], small_outputs(small_feed()))

    def test_a_model_that_failed_to_load_leaves_none_behind(self) -> None:
        with self.open() as executor:
            executor.load_model(other_model())
            try:
                executor.load_model(broken_model("NoSuchOperator"))
            except SgsdumpError:
                assert_raises(
                    ConfigError, "execute", lambda: executor.execute(["b"], {"a": np.ones((1, 2), np.float32)})
                )


def assert_raises(kind: type[Exception], words: str, act: Callable[[], object]) -> None:
    """Assert that ``act`` raises an error of this kind, whose message is one line and contains ``words``."""
    try:
        act()
    except kind as error:
        assert words in str(error), f"{words!r} is not in: {error}"
        assert "\n" not in str(error).strip(), f"more than one line: {error}"
        return
    raise AssertionError(f"no {kind.__name__} whose message contains {words!r} was raised")


def small_model(outputs: list[str] | None = None, batch: int | str = 1) -> onnx.ModelProto:
    """Return the test model.

    Inputs are ``x/in`` float32 [batch, 3, 4, 6], ``index`` int64 [2] and ``keep`` bool [1]; outputs are OUTPUTS,
    untyped.
    """
    nodes = [
        helper.make_node("Conv", ["x/in", "conv.w", "conv.b"], ["block/conv.1"], "block/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["block/conv.1"], ["relu:0"], "relu"),
        helper.make_node("GlobalAveragePool", ["relu:0"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["scores"], "fc", transB=1),
        helper.make_node("ArgMax", ["scores"], ["best"], "best", axis=1, keepdims=0),
        helper.make_node("Gather", ["scores", "index"], ["picked"], "pick", axis=1),
        helper.make_node("Not", ["keep"], ["not keep"], "negate"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info("x/in", FLOAT, [batch, 3, 4, 6]),
            helper.make_tensor_value_info("index", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, [1]),
        ],
        [onnx.ValueInfoProto(name=name) for name in (OUTPUTS if outputs is None else outputs)],
        [numpy_helper.from_array(array, name) for name, array in _weights().items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def small_feed(seed: int = 0, batch: int = 1) -> Feed:
    rng = np.random.default_rng(seed)
    return {
        "x/in": rng.normal(size=(batch, 3, 4, 6)).astype(np.float32),
        "index": np.array([seed % 5, 4], np.int64),
        "keep": np.array([seed % 2 == 0]),
    }


def small_outputs(feed: Feed) -> Feed:
    """Compute the outputs of ``small_model`` for a feed, with numpy in float64."""
    weights = {name: array.astype(np.float64) for name, array in _weights().items()}
    padded = np.pad(feed["x/in"].astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    conv = np.einsum("nchwij,ocij->nohw", windows, weights["conv.w"]) + weights["conv.b"][:, None, None]
    relu = np.maximum(conv, 0)
    pooled = relu.mean(axis=(2, 3), keepdims=True)
    flat = pooled.reshape(len(pooled), -1)
    scores = flat @ weights["fc.w"].T + weights["fc.b"]
    floats = [conv, relu, pooled, flat, scores]
    rest = [scores.argmax(axis=1), scores[:, feed["index"]].astype(np.float32), ~feed["keep"]]
    return dict(zip(OUTPUTS, [*(array.astype(np.float32) for array in floats), *rest]))


def other_model(width: int = 2) -> onnx.ModelProto:
    """Return the model ``b = a + a``, float32 [1, width]."""
    return _model([helper.make_node("Add", ["a", "a"], ["b"], "add")], width)


def broken_model(op_type: str) -> onnx.ModelProto:
    """Return a model with one node ``odd`` that no back-end can run on ``a``, float32 [1, 2]."""
    return _model([helper.make_node(op_type, ["a", "a"], ["b"], "odd")], 2)


def _model(nodes: list[onnx.NodeProto], width: int) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("a", FLOAT, [1, width])]
    graph = helper.make_graph(nodes, "other", inputs, [onnx.ValueInfoProto(name="b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _weights() -> Feed:
    rng = np.random.default_rng(7)
    shapes = {"conv.w": (4, 3, 3, 3), "conv.b": (4,), "fc.w": (5, 4), "fc.b": (5,)}
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
