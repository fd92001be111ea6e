"""Results of the fixed-point commands as sentences, text, csv, json and charts."""
