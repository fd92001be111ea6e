"""The metrics of other tools as those print them, one file each; ``base.py`` is the contract."""

from sgsdump.registry import Registry

VENDOR_METRICS = Registry(
    "vendor's metrics",
    {
        "msaccucmp": "sgsdump.comparison.vendor_metrics.msaccucmp:printed",
        "msprobe": "sgsdump.comparison.vendor_metrics.msprobe:printed",
    },
)

# what the tool prints where only statistics were dumped; tools that are not here print nothing there
VENDOR_STATISTICS = Registry(
    "vendor's statistics",
    {"msprobe": "sgsdump.comparison.vendor_metrics.msprobe:printed_statistics"},
)
