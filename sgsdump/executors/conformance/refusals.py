"""Conformance: a wrong feed, name, option or model is one line of error, and does no harm to what comes after it."""

from __future__ import annotations

import numpy as np
import onnx

from sgsdump.errors import ConfigError, InputError, ModelError, SgsdumpError
from sgsdump.executors.base import Executor
from sgsdump.executors.conformance.harness import Harness, assert_raises
from sgsdump.executors.conformance.models import (
    OUTPUTS,
    broken_model,
    other_model,
    small_feed,
    small_model,
    small_outputs,
)


class Refusals(Harness):
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
