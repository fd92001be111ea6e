"""The table of executors and what all of ours have in common."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sgsdump.errors import ConfigError, MissingExtra
from sgsdump.executors.base import Executor
from sgsdump.executors.conformance import ExecutorConformance, assert_raises, other_model
from sgsdump.executors.reference import ReferenceExecutor
from sgsdump.executors.table import executors, open_executor


def test_the_table() -> None:
    assert {"ort", "reference", "openvino", "tvm", "sdaa"} <= set(executors())
    for name in ("ort", "reference", "openvino", "tvm", "sdaa"):
        assert executors()[name].name == name
        for option, text in executors()[name].init_options.items():
            assert option.isidentifier() and "\n" not in text


def test_an_unknown_executor_is_told_with_the_nearest() -> None:
    assert_raises(ConfigError, "did you mean 'openvino'", lambda: open_executor("openvin"))


@pytest.mark.parametrize(("name", "package"), [("openvino", "openvino"), ("tvm", "tvm")])
def test_a_missing_package_is_told_with_the_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert_raises(MissingExtra, f"pip install 'sgsdump[{name}]'", lambda: open_executor(name))


def test_sdaa_says_what_is_needed() -> None:
    assert_raises(MissingExtra, "vendor's inference package", lambda: open_executor("sdaa"))
    assert_raises(MissingExtra, "docs/own_executor.md", lambda: open_executor("sdaa", {"passes": "p.py"}))


def test_modules_need_none_of_the_packages() -> None:
    """All members can be imported, and import no optional package."""
    code = (
        "import sys; sys.modules.update(openvino=None, tvm=None); "
        "from sgsdump.executors import EXECUTORS; from sgsdump.executors.table import executors; "
        "[executors()[name] for name in EXECUTORS]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Faulty(ReferenceExecutor):
    fault = ""

    def on_load(self, model, configs, folder) -> None:
        if self.fault == "keeps the first model" and self._evaluator is not None:
            return
        if self.fault == "changes the model":
            model.graph.name = "mine"
        super().on_load(model, configs, None if self.fault == "no external data" else folder)

    def on_execute(self, output_names, feed, configs) -> list[np.ndarray]:
        if self.fault == "changes the feed":
            next(iter(feed.values()))[...] = 0
        arrays = super().on_execute(output_names, feed, configs)
        if self.fault == "file order":
            names = [info.name for info in self._evaluator.proto_.graph.output]
            return [array for _, array in sorted(zip(output_names, arrays), key=lambda pair: names.index(pair[0]))]
        if self.fault == "one short":
            return arrays[:-1]
        if self.fault == "lends its buffers":
            self.buffers = getattr(self, "buffers", None) or arrays
            for buffer, array in zip(self.buffers, arrays):
                if buffer.shape == array.shape:
                    buffer[...] = array
            return self.buffers
        if self.fault == "half":
            return [a.astype(np.float16).astype(a.dtype) if a.dtype == np.float32 else a for a in arrays]
        if self.fault == "float64":
            return [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        if self.fault == "NaN to 0":
            return [np.nan_to_num(a) for a in arrays]
        return arrays

    def on_release(self) -> None:
        if self.fault == "releases twice":
            self._state = "ready"
            self.fault = "released"
            self.release()
        super().on_release()


def failures(fault: str) -> list[str]:
    class Suite(ExecutorConformance):
        def make(self) -> Executor:
            executor = Faulty()
            executor.fault = fault
            return executor

    failed = []
    for name in dir(Suite):
        if name.startswith("test_"):
            try:
                getattr(Suite(), name)()
            except Exception:
                failed.append(name)
    return failed


FAULTS = [
    *("keeps the first model", "changes the model", "no external data", "changes the feed", "file order", "one short"),
    *("lends its buffers", "half", "float64", "NaN to 0", "releases twice"),
]


def test_the_conformance_class_passes_a_good_executor() -> None:
    assert failures("") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_conformance_class_finds_faults(fault: str) -> None:
    assert failures(fault)


def test_a_failing_init_releases() -> None:
    class Half(ReferenceExecutor):
        released = 0

        def on_init(self, configs) -> None:
            raise ConfigError("no device")

        def on_release(self) -> None:
            self.released += 1

    executor = Half()
    assert_raises(ConfigError, "no device", executor.init)
    assert executor.released == 1
    assert_raises(ConfigError, "load_model", lambda: executor.load_model(other_model()))
