"""The reports of a comparison, by name; ``base.py`` is the contract."""

from sgsdump.registry import Registry

REPORTS = Registry(
    "report",
    {
        "sdk_table": "sgsdump.reports.comparison.sdk_table:render",
        "sdk_lines": "sgsdump.reports.comparison.sdk_lines:render",
        "verdict": "sgsdump.reports.comparison.verdict:render",
        "csv": "sgsdump.reports.comparison.csv_table:render",
        "json": "sgsdump.reports.comparison.json_document:render",
    },
)
