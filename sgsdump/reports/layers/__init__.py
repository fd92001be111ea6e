"""A comparison layer by layer, whatever was compared: ``LayerTable``, which JUnit, Markdown, the terminal's table and
the annotated model are made of, so that each of them shows the same numbers."""
