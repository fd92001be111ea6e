"""Which test runs which line, measured once: coverage.py with a context for every test.

A context is a test's node id; what runs while a file is collected or its fixtures are set up counts for all tests of
that file, whose path is then the context. Tests that start processes of their own are seen as far as this process goes.
"""

from __future__ import annotations

import ast
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SEPARATE = ("lru_cache", "cache")  # a cached function runs for the first test that needs it and serves them all


@dataclass
class Trace:
    """``seconds`` of every test; ``contexts`` of every line of every file, both from the root of the tree."""

    seconds: dict[str, float] = field(default_factory=dict)
    contexts: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    failed: set[str] = field(default_factory=set)

    def add(self, other: Trace) -> None:
        self.seconds |= other.seconds
        self.failed |= other.failed
        for path, lines in other.contexts.items():
            for line, names in lines.items():
                self.contexts[path][line] |= names

    def tests_of(self, path: str, source: str, line: int) -> list[str]:
        """The tests that run a line, the quickest first; those that run anything of the file for a line of its top."""
        lines = self.contexts.get(path, {})
        statement = _statement(source, line)
        names = (
            set().union(*lines.values()) if statement is None else set().union(*(lines.get(n, ()) for n in statement))
        )
        files = {name for name in names if "::" not in name}
        tests = {test for test in self.seconds if test in names or test.partition("::")[0] in files}
        return sorted(tests - self.failed, key=lambda test: (self.seconds[test], test))

    def save(self, path: Path) -> None:
        contexts = {
            name: {line: sorted(names) for line, names in lines.items()} for name, lines in self.contexts.items()
        }
        text = json.dumps({"seconds": self.seconds, "contexts": contexts, "failed": sorted(self.failed)})
        path.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Trace:
        stored = json.loads(path.read_text(encoding="utf-8"))
        trace = cls(stored["seconds"], failed=set(stored["failed"]))
        for name, lines in stored["contexts"].items():
            trace.contexts[name] = defaultdict(set, {int(line): set(names) for line, names in lines.items()})
        return trace


class Watch:
    """The pytest plugin that switches contexts and times the tests."""

    def __init__(self, coverage):
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector) -> Iterator[None]:
        self.coverage.switch_context(collector.nodeid.partition("::")[0])
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item) -> Iterator[None]:
        started = time.perf_counter()
        self.coverage.switch_context(item.nodeid.partition("::")[0])
        result = yield
        self.seconds[item.nodeid] = round(time.perf_counter() - started, 4)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        result = yield
        return result

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def traced(tree: Path, tests: list[str], arguments: list[str], data: Path) -> Trace:
    """Runs the tests in this process, which must not have imported the package before."""
    from coverage import Coverage

    coverage = Coverage(data_file=str(data), include=[f"{tree}/sgsdump/*"], config_file=False, messages=False)
    watch = Watch(coverage)
    coverage.start()
    pytest.main([*arguments, *tests], plugins=[watch])
    coverage.stop()
    trace = Trace(watch.seconds, failed=watch.failed)
    found = coverage.get_data()
    for file in found.measured_files():
        lines = trace.contexts[str(Path(file).relative_to(tree))]
        for line, names in found.contexts_by_lineno(file).items():
            lines[line] |= {name for name in names if name}
    return trace


def _statement(source: str, line: int) -> range | None:
    """The lines of the innermost statement around a line of a function; None at the top of a module or class, in the
    head of a function (its defaults) and in functions with a cache."""
    path: list[ast.stmt] = []
    body: list[ast.stmt] = ast.parse(source).body
    while body:
        inner = next((node for node in body if _first(node) <= line <= (node.end_lineno or 0)), None)
        if inner is None:
            break
        path.append(inner)
        body = [node for node in ast.iter_child_nodes(inner) if isinstance(node, ast.stmt | ast.excepthandler)]  # type: ignore[misc]
        body += list(getattr(inner, "cases", []))
    functions = [node for node in path if isinstance(node, ast.FunctionDef)]
    if not functions or line < functions[-1].body[0].lineno:
        return None
    if any(word in ast.dump(mark) for node in functions for mark in node.decorator_list for word in SEPARATE):
        return None
    if isinstance(path[-1], ast.FunctionDef):
        return range(line, line + 1)
    last = path[-1]
    inside = [node.lineno for node in ast.iter_child_nodes(last) if isinstance(node, ast.stmt | ast.excepthandler)]
    end = min(inside) - 1 if inside else last.end_lineno or last.lineno
    return range(_first(last), max(end, line) + 1)


def _first(node: ast.AST) -> int:
    marks = [mark.lineno for mark in getattr(node, "decorator_list", [])]
    case = getattr(node, "pattern", None)
    return min([*marks, case.lineno if case is not None else node.lineno])  # type: ignore[attr-defined]
