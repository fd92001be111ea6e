"""Results of the fixed-point commands as sentences, text, CSV, JSON and charts."""
