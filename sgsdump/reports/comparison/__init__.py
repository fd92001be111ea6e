"""Reports of a comparison, by name: functions that return text from a ``Comparison`` and its ``Thresholds``.

``schemas/comparison.json`` is the JSON Schema of the JSON report.
"""

from sgsdump.registry import Registry

REPORTS = Registry(
    "report",
    {
        "sdk_table": "sgsdump.reports.comparison.sdk:table",
        "sdk_lines": "sgsdump.reports.comparison.sdk:log_lines",
        "verdict": "sgsdump.reports.verdict:verdict_text",
        "csv": "sgsdump.reports.comparison.data:render_csv",
        "json": "sgsdump.reports.comparison.data:render_json",
    },
)
