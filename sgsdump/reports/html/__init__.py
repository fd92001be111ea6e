"""HTML report as a single self-contained file: ``document.py`` renders it from ``page/``."""
