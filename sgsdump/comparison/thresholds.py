"""Limits on the metrics of layers, and the test whether a layer is within them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from sgsdump.comparison.metrics import METRICS
from sgsdump.errors import ConfigError

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Thresholds:
    """Limits on the metrics of a layer; None means no limit. A NaN metric exceeds its limit.

    further           (metric, limit): a minimum if higher is better, else a maximum.
    layers            (pattern, metric, limit): replaces the general limit for layers whose names match; later entries
                      win. ``*``, ``?`` and ``[ab]`` work as in the shell.
    own               names of the user's own metrics for which higher is better.
    max_channel_rmse  limit on the RMSE of a layer's worst channel.
    """

    min_cos: float | None = None
    max_rmse: float | None = None
    max_mse: float | None = None
    further: tuple[tuple[str, float], ...] = ()
    layers: tuple[tuple[str, str, float], ...] = ()
    own: tuple[str, ...] = ()
    max_channel_rmse: float | None = None

    def __post_init__(self) -> None:
        """Validate the limits. Raise ConfigError for impossible limits and unknown metrics."""
        if self.min_cos is not None and not -1 <= self.min_cos <= 1:
            raise ConfigError(f"the limit on COS must be between -1 and 1, not {self.min_cos:g}")
        for name, limit in (
            ("RMSE", self.max_rmse),
            ("MSE", self.max_mse),
            ("RMSE of a channel", self.max_channel_rmse),
        ):
            if limit is not None and not limit >= 0:
                raise ConfigError(f"the limit on {name} must be 0 or more, not {limit:g}")
            if limit == math.inf:
                raise ConfigError(
                    f"the limit on {name} must be finite, not {limit:g}. If the metric needs no limit, omit the limit"
                )
        if isinstance(self.further, str):
            raise ConfigError("the argument further must be a list of pairs (metric name, limit), not a string")
        for name, limit in self.further:
            possible = limit == limit if name in self.own else METRICS[name].higher_is_better and limit <= 1
            if not possible and not limit >= 0:
                raise ConfigError(f"no value of the metric {name} can be within the limit {limit:g}")
        for _, name, limit in self.layers:
            Thresholds(own=self.own).limited(name, limit)

    def limited(self, name: str, limit: float) -> Thresholds:
        """Return a copy with a new limit for one metric. Raise ConfigError if the limit is impossible."""
        if name == "cos":
            return replace(self, min_cos=limit)
        if name == "rmse":
            return replace(self, max_rmse=limit)
        if name == "mse":
            return replace(self, max_mse=limit)
        return replace(self, further=(*(pair for pair in self.further if pair[0] != name), (name, limit)))

    def of_layer(self, *names: str) -> Thresholds:
        """Return the limits for a layer, given its names."""
        if not self.layers:
            return self
        limits = replace(self, layers=())
        for pattern, name, limit in self.layers:
            if any(fnmatchcase(name, pattern) for name in names):
                limits = limits.limited(name, limit)
        return limits

    def __str__(self) -> str:
        limits = (
            ("COS", "<", self.min_cos),
            ("RMSE", ">", self.max_rmse),
            ("MSE", ">", self.max_mse),
            ("RMSE of a channel", ">", self.max_channel_rmse),
        )
        texts = [f"{name} {sign} {limit:g}" for name, sign, limit in limits if limit is not None]
        texts += [f"{name} {'<' if self._higher_is_better(name) else '>'} {limit:g}" for name, limit in self.further]
        texts += [f"{name} of {layer} past {limit:g}" for layer, name, limit in self.layers]
        return " or ".join(texts)

    def __bool__(self) -> bool:
        return bool(self.further or self.layers) or any(
            limit is not None for limit in (self.min_cos, self.max_rmse, self.max_mse, self.max_channel_rmse)
        )

    def hold(self, cos: float, rmse: float, mse: float, further: Mapping[str, float] = _NONE) -> bool:
        """Return whether the metrics are within all limits.

        further  additional metrics by name; a missing metric that has a limit counts as NaN.
        """
        # Two tensors of zeros (MSE 0, COS and RMSE NaN) are equal. With MSE 0 and RMSE > 0 the squared differences
        # underflow, so the limits apply.
        if mse == 0 and not rmse > 0:
            return True
        return (
            (self.min_cos is None or cos >= self.min_cos)
            and (self.max_rmse is None or rmse <= self.max_rmse)
            and (self.max_mse is None or mse <= self.max_mse)
            and all(self._holds(name, further.get(name, float("nan")), limit) for name, limit in self.further)
        )

    def past_channel(self, rmse: float) -> bool:
        """Return whether the RMSE of any channel exceeds the limit for channels; False without a limit."""
        return self.max_channel_rmse is not None and not rmse <= self.max_channel_rmse

    def _holds(self, name: str, value: float, limit: float) -> bool:
        return value >= limit if self._higher_is_better(name) else value <= limit

    def _higher_is_better(self, name: str) -> bool:
        return name in self.own or METRICS[name].higher_is_better


DOCUMENTED = Thresholds(min_cos=0.99, max_rmse=0.1)  # limits of "layer likely bad" in the SDK's debugging guide
