"""The metrics of other tools as those print them, one file each; ``sgsdump/vendor_metric.py`` is the contract."""

from sgsdump.family import Family

VENDOR_METRICS = Family(
    "vendor's metrics",
    {
        "msaccucmp": "sgsdump.vendor_metrics.msaccucmp:printed",
        "msprobe": "sgsdump.vendor_metrics.msprobe:printed",
    },
)
