"""What advise, repair and tune say: text, CSV, JSON and the trade-off plot."""
