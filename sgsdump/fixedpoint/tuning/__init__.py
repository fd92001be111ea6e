"""Which convolutions deserve INT16: advice by rule, repair in rounds, search."""
