"""The report as one HTML file that needs nothing else: ``document.py`` holds what it is made of, and ``render``."""
