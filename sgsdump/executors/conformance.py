"""What every executor must do, as tests that the author of a plug-in runs on it. Plain asserts; pytest collects them:

    from sgsdump.executors.conformance import ExecutorConformance

    class TestMine(ExecutorConformance):
        def make(self):
            return MyExecutor()

The model (``conformance_models.py``) is small: a convolution, a branch, a matrix product, an integer and a boolean
path; the oracle is numpy.
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

from sgsdump.errors import ConfigError, InputError, ModelError, SgsdumpError
from sgsdump.executors.base import Executor
from sgsdump.executors.conformance_models import (
    OUTPUTS,
    broken_model,
    other_model,
    small_feed,
    small_model,
    small_outputs,
)

__all__ = ["ExecutorConformance", "assert_raises", "other_model", "small_feed", "small_model", "small_outputs"]


class ExecutorConformance:
    """``make`` gives a new executor, not yet initialised; ``open`` the one that the tests use.

    tolerance   the largest |difference| to numpy, as a share of the largest |value| of the tensor.
    configs     what ``init`` gets.
    any_batch   False for a back-end that cannot take a model with a free batch size.
    """

    tolerance = 1e-5
    configs: Mapping[str, Any] | None = None
    any_batch = True

    @abstractmethod
    def make(self) -> Executor: ...

    def open(self) -> AbstractContextManager[Executor]:
        executor = self.make()
        executor.init(self.configs)
        return executor

    def check(self, arrays: list[np.ndarray], names: list[str], wanted: Mapping[str, np.ndarray]) -> None:
        assert len(arrays) == len(names)
        for name, array in zip(names, arrays):
            assert isinstance(array, np.ndarray), name
            assert (array.dtype, array.shape) == (wanted[name].dtype, wanted[name].shape), name
            if wanted[name].dtype.kind != "f":
                np.testing.assert_array_equal(array, wanted[name], err_msg=name)
                continue
            largest = np.abs(wanted[name]).max()
            np.testing.assert_allclose(array, wanted[name], rtol=0, atol=self.tolerance * largest, err_msg=name)

    def test_outputs_have_the_models_names_shapes_types_and_values(self) -> None:
        with self.open() as executor:
            executor.load_model(small_model())
            self.check(executor.execute(OUTPUTS, small_feed()), OUTPUTS, small_outputs(small_feed()))

    def test_outputs_come_in_the_order_asked_for(self) -> None:
        wanted = small_outputs(small_feed())
        with self.open() as executor:
            executor.load_model(small_model())
            for names in (OUTPUTS[::-1], ["scores"], ["not keep", "block/conv.1"], ["best"]):
                self.check(executor.execute(names, small_feed()), names, wanted)

    def test_a_model_with_one_output(self) -> None:
        for name in ("relu:0", "scores", "best"):
            with self.open() as executor:
                executor.load_model(small_model([name]))
                self.check(executor.execute([name], small_feed()), [name], small_outputs(small_feed()))

    def test_feeds_one_after_another(self) -> None:
        """Each run gives its own values, and the arrays of an earlier run do not change."""
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
        """Leaving the ``with`` block by an error releases exactly once."""
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
            for words, each in wrong.items():
                assert_raises(InputError, words, lambda each=each: executor.execute(OUTPUTS, each))  # type: ignore[misc]
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
        """At loading or at running, whichever finds it: one line that names the executor."""

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
    """``act`` raises an error of this kind, in one line that contains ``words``."""
    try:
        act()
    except kind as error:
        assert words in str(error), f"{words!r} is not in: {error}"
        assert "\n" not in str(error).strip(), f"more than one line: {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {words!r} was raised")
