"""Running a graph operator by operator, each shown to an observer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch.fx

from sgsdump.torchair.operators import Operator
from sgsdump.torchair.unwritten import Watch
from sgsdump.torchair.values import tensors_in


class Observer(Protocol):
    """Is called with the tensors that an operator reads and gives; ``NotWritten`` stands for those without values."""

    def before(self, operator: Operator, inputs: Sequence[Any]) -> Sequence[Any]: ...

    def after(self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any]) -> None: ...


def run_observed(module: Any, operators: Mapping[str, Operator], observer: Observer, inputs: Sequence[Any]) -> Any:
    """What ``module(*inputs)`` gives; ``observer`` is called around each of ``operators``, which are by node."""
    return _Run(module, operators, observer).run(*inputs)


class _Run(torch.fx.Interpreter):
    def __init__(self, module: Any, operators: Mapping[str, Operator], observer: Observer):
        super().__init__(module)
        self._operators = operators
        self._observer = observer
        self._watch = Watch(module)

    def run_node(self, n: Any) -> Any:
        operator = self._operators.get(n.name)
        if operator is None:
            with self._watch.running():
                return super().run_node(n)
        arguments = () if operator.is_data else self.fetch_args_kwargs_from_env(n)
        with torch.no_grad():
            inputs = self._observer.before(operator, self._watch.told(tensors_in(arguments)))
        with self._watch.running():
            result = super().run_node(n)
        with torch.no_grad():
            self._observer.after(operator, inputs, self._watch.told(tensors_in(result)))
        return result
