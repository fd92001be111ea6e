"""How far a layer may be off before it is called bad."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.errors import ConfigError


@dataclass(frozen=True)
class Thresholds:
    """Limits on a layer's metrics; None is no limit. A NaN metric is past every limit on it."""

    min_cos: float | None = None
    max_rmse: float | None = None
    max_mse: float | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for limits that nothing could ever be within."""
        if self.min_cos is not None and not -1 <= self.min_cos <= 1:
            raise ConfigError(f"a COS lies between -1 and 1, so {self.min_cos:g} is no threshold for it")
        for name, limit in (("RMSE", self.max_rmse), ("MSE", self.max_mse)):
            if limit is not None and not limit >= 0:
                raise ConfigError(f"an {name} is 0 or more, so {limit:g} is no threshold for it")

    def __str__(self) -> str:
        limits = (("COS", "<", self.min_cos), ("RMSE", ">", self.max_rmse), ("MSE", ">", self.max_mse))
        return " or ".join(f"{name} {sign} {limit:g}" for name, sign, limit in limits if limit is not None)

    def __bool__(self) -> bool:
        return (self.min_cos, self.max_rmse, self.max_mse) != (None, None, None)

    def hold(self, cos: float, rmse: float, mse: float) -> bool:
        """True when no limit is passed; two tensors of nothing but zeros (MSE 0, COS and RMSE NaN) are equal."""
        if mse == 0:
            return True
        return (
            (self.min_cos is None or cos >= self.min_cos)
            and (self.max_rmse is None or rmse <= self.max_rmse)
            and (self.max_mse is None or mse <= self.max_mse)
        )


DOCUMENTED = Thresholds(min_cos=0.99, max_rmse=0.1)  # "layer likely bad" in the SDK's debugging guide
