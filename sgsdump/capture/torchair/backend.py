"""The backend of ``torch.compile`` that dumps operators.

If the environment variable ``DUMP_GE_GRAPH`` is set, each graph's operators are listed in ``ge_proto_*.txt``. The file
shows the names that can be selected, before anything is dumped. ``sgsdump show --operators`` reads it.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sgsdump.capture.torchair.operators import Operator, Slots, chosen, left_out, logger, lowered, operators_of
from sgsdump.capture.torchair.options import CompilerConfig
from sgsdump.capture.torchair.plan import LivePlan, Plan
from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.files.atomic_write import replacing
from sgsdump.sidecars.ge_proto import GraphOperator, render

if TYPE_CHECKING:
    from sgsdump.capture.torchair.dumped import Observer
    from sgsdump.capture.torchair.tree import Step

LEVEL, FOLDER = "DUMP_GE_GRAPH", "DUMP_GRAPH_PATH"
MODE = "max-autotune"
_numbers = itertools.count(1)
_graphs: Counter[str] = Counter()


def get_npu_backend(
    *, compiler_config: CompilerConfig | None = None, custom_decompositions: Mapping[Any, Any] | None = None
) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
    """Return a backend for ``torch.compile`` that runs the captured graph operator by operator and dumps it.

    Parameters
    ----------
    compiler_config : CompilerConfig, optional
        TorchAir's configuration. Without it nothing is dumped.
    custom_decompositions : Mapping, optional
        Accepted for compatibility; no effect: operators run as captured.

    Returns
    -------
    Callable
        The backend: a function of (captured graph, example inputs) that returns a callable.

    Raises
    ------
    ConfigError
        If options are invalid or contradict each other. The error is raised here, before the program is compiled.

    Notes
    -----
    The program's results are those of the captured graph run by torch on the program's own device. Problems during the
    run are reported as warnings of the logger ``sgsdump.torchair`` and never stop the program.

    Examples
    --------
    ::

        config = CompilerConfig()
        config.dump_config.enable_dump = True
        config.dump_config.dump_path = "dumps"
        model = torch.compile(model, backend=get_npu_backend(compiler_config=config))
    """
    config = CompilerConfig() if compiler_config is None else compiler_config
    options = config.dump_config
    if options.enable_dump and config.mode != MODE:
        raise ConfigError(f"config.mode is {config.mode!r}; operators are dumped only in mode {MODE}")
    live = LivePlan(options)
    if not live.plan.control.enabled and options.explicit.get("dump_config_path"):
        logger.warning("nothing is dumped: dump_config.enable_dump is False, or the file selects nothing")
    if options.enable_dump or _lists_graphs():
        _let_recurrent_networks_compile()

    def npu_backend(captured: Any, examples: Sequence[Any]) -> Callable[..., Any]:
        if not (options.enable_dump or _lists_graphs()):
            return captured.forward  # type: ignore[no-any-return]
        return _Graph(captured, examples, live)

    return npu_backend


def _lists_graphs() -> bool:
    """Return whether the environment requests graph listings; levels 1, 2 and 3 all list names, types and inputs."""
    return os.environ.get(LEVEL, "") in ("1", "2", "3")


def _write_listing(graph: str, number: int, operators: Sequence[Operator]) -> None:
    """Write ``ge_proto_00000001_graph_1.txt`` to the folder of ``DUMP_GRAPH_PATH``, or the current folder."""
    path = Path(os.environ.get(FOLDER) or ".") / f"ge_proto_{number:08d}_graph_{number}.txt"
    text = render(graph, [_listed(operator) for operator in operators])
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except SgsdumpError as error:
        logger.warning("%s", error)


def _listed(operator: Operator) -> GraphOperator:
    facts = {"_module": operator.module, "_source": operator.call.source, "_also": " ".join(operator.aliases)}
    attributes = tuple((name, value) for name, value in facts.items() if value)
    return GraphOperator(operator.name, operator.op_type, operator.inputs, attributes)


def _let_recurrent_networks_compile() -> None:
    """Let torch's compiler accept LSTM, GRU and RNN; otherwise it skips functions that call one, without a graph."""
    if find_spec("torch") is None:
        return
    import torch._dynamo.config as compiler

    if hasattr(compiler, "allow_rnn"):  # torch 2.6
        compiler.allow_rnn = True


class _Choice(NamedTuple):
    """Chosen nodes of a graph.

    nodes     nodes that are dumped or watched.
    listed    nodes after which watched nodes are dumped again; None for all.
    left_out  inputs and outputs that are not dumped, by node.
    """

    nodes: frozenset[str]
    listed: frozenset[str] | None
    left_out: Mapping[str, Slots]


class _Graph:
    """One captured graph; called in its place, once per step."""

    def __init__(self, captured: Any, examples: Sequence[Any], live: LivePlan):
        from sgsdump.capture.torchair.dumped import Earlier

        self._module = lowered(captured, examples)
        self._operators = operators_of(self._module, captured)
        self._by_node = {operator.node: operator for operator in self._operators}
        self._live = live
        self._number = next(_numbers)
        owner = _owner() or "graph"
        _graphs[owner] += 1
        self._name = owner if _graphs[owner] == 1 else f"{owner}_{_graphs[owner]}"
        self._names = (self._name, owner)
        self._steps, self._dumped = itertools.count(), itertools.count()
        self._earlier = Earlier()
        self._choices: tuple[Plan, _Choice] | None = None
        if _lists_graphs():
            _write_listing(self._name, self._number, self._operators)

    def __call__(self, *inputs: Any) -> Any:
        step, plan = next(self._steps), self._live.now()
        control, tree = plan.control, self._live.tree
        if not control.enabled or step not in control.steps or not tree.room(control.storage.min_free):
            return self._module(*inputs)
        choice = self._choice(plan)
        if step:
            self._live.names.tell()  # from the second step on, every graph is known
        if not choice.nodes:
            return self._module(*inputs)
        index = step if control.steps.ranges else next(self._dumped)
        try:
            folder = tree.step(_device(inputs), self._name, self._number, index)
        except OSError as error:
            tree.stop(f"cannot create a folder in {tree.path}: {error.strerror or error}")
            return self._module(*inputs)
        return self._observed(plan, folder, choice, inputs)

    def _observed(self, plan: Plan, folder: Step, choice: _Choice, inputs: Sequence[Any]) -> Any:
        from sgsdump.capture.torchair.dumped import Dumped, Watched, run_observed

        observer: Observer = Dumped(plan, folder, choice.nodes, choice.left_out, self._earlier)
        if plan.control.scene == "watcher":
            observer = Watched(plan, folder, choice.nodes, choice.listed)
        complete = False
        try:
            result = run_observed(self._module, self._by_node, observer, inputs)
            complete = True
            return result
        finally:
            folder.finish(complete)

    def _choice(self, plan: Plan) -> _Choice:
        if self._choices is None or self._choices[0] is not plan:
            self._choices = plan, self._chosen(plan)
        return self._choices[1]

    def _chosen(self, plan: Plan) -> _Choice:
        control, names, operators = plan.control, self._live.names, self._operators
        if control.scene == "watcher":
            watched = names.find(operators, control.operators.watched, "watcher_nodes")
            return _Choice(
                watched,
                names.find(operators, control.operators.names, "layer") if control.operators.names else None,
                {},
            )
        nodes = chosen(operators, control, plan.ranges, self._names, names)
        return _Choice(nodes, None, left_out(operators, plan.entries, self._names, names))


def _device(inputs: Sequence[Any]) -> int:
    """Return the number of the inputs' device."""
    devices = (getattr(value, "device", None) for value in inputs)
    return next((device.index or 0 for device in devices if device is not None), 0)


def _owner() -> str:
    """Return the class of the network being compiled, or the function's name; "" if the compiler does not show it."""
    frame = sys._getframe(1)
    while frame is not None:
        compiled = getattr(frame.f_locals.get("self"), "root_tx", None)
        code = getattr(compiled, "f_code", None)
        if code is not None:
            values = getattr(compiled, "f_locals", {}).values()
            return next((type(value).__name__ for value in values if hasattr(value, "_modules")), str(code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return ""
