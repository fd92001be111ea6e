"""The three-way comparison with golden, as text, CSV and JSON."""
