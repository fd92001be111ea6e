"""The metrics a comparison prints, one file each; ``sgsdump/metric.py`` is the contract."""

from sgsdump.family import Family

METRICS = Family(
    "metric",
    {
        "mse": "sgsdump.metrics.mse:MSE",
        "cos": "sgsdump.metrics.cos:COS",
        "rmse": "sgsdump.metrics.rmse:RMSE",
    },
)
