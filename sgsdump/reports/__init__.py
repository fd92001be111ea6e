"""How results reach the user: a comparison's text reports (``REPORTS``; contract in report.py), and pictures."""

from sgsdump.family import Family

REPORTS = Family(
    "report",
    {
        "sdk_table": "sgsdump.reports.sdk_table:render",
        "sdk_lines": "sgsdump.reports.sdk_lines:render",
        "verdict": "sgsdump.reports.verdict:render",
        "csv": "sgsdump.reports.csv_table:render",
        "json": "sgsdump.reports.json_document:render",
    },
)
