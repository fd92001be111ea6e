"""Running a graph operator by operator, each shown to an observer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch.fx

from sgsdump.torchair.operators import Operator


class Observer(Protocol):
    def before(self, operator: Operator, arguments: Any) -> Sequence[Any]: ...

    def after(self, operator: Operator, inputs: Sequence[Any], result: Any) -> None: ...


def run_observed(module: Any, operators: Mapping[str, Operator], observer: Observer, inputs: Sequence[Any]) -> Any:
    """What ``module(*inputs)`` gives; ``observer`` is called around each of ``operators``, which are by node."""
    return _Run(module, operators, observer).run(*inputs)


class _Run(torch.fx.Interpreter):
    def __init__(self, module: Any, operators: Mapping[str, Operator], observer: Observer):
        super().__init__(module)
        self._operators = operators
        self._observer = observer

    def run_node(self, n: Any) -> Any:
        operator = self._operators.get(n.name)
        if operator is None:
            return super().run_node(n)
        arguments = () if operator.is_data else self.fetch_args_kwargs_from_env(n)
        with torch.no_grad():
            inputs = self._observer.before(operator, arguments)
        result = super().run_node(n)
        with torch.no_grad():
            self._observer.after(operator, inputs, result)
        return result
