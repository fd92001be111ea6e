"""A comparison of any kind as a table of layers (``table.py``), and what is made of it: ``WRITERS`` by the name of the
option that asks for the file, each a function of a ``LayerTable`` and a ``Listing`` that returns a text."""

from sgsdump.registry import Registry

WRITERS = Registry(
    "table",
    {"junit": "sgsdump.reports.layers.junit:render", "markdown": "sgsdump.reports.layers.markdown:render"},
)
