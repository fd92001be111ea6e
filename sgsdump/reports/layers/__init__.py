"""Table of layers of any comparison (``table.py``), and its file formats.

``WRITERS`` are by the name of the command-line option: functions that return text from a ``LayerTable`` and a
``Listing``.
"""

from sgsdump.registry import Registry

WRITERS = Registry(
    "table",
    {"junit": "sgsdump.reports.layers.junit:render", "markdown": "sgsdump.reports.layers.markdown:render"},
)
