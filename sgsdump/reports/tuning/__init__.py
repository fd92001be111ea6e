"""The results of advise, repair and tune: text, CSV, JSON and the trade-off plot."""
