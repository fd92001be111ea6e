"""Conformance: the values an executor gives are the model's, whatever it ran before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx

from sgsdump.errors import ModelError
from sgsdump.executors.conformance.harness import Harness, assert_raises
from sgsdump.executors.conformance.models import (
    OUTPUTS,
    other_model,
    small_feed,
    small_model,
    small_outputs,
)


class Values(Harness):
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
