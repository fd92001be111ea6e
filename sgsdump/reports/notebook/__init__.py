"""What results show in a notebook (``_repr_html_``), in the look of the HTML report; ``sgsdump/__init__.py`` names the
members. No script, nothing fetched, every text escaped, of bounded size: a notebook keeps its outputs."""
