"""Choice of the convolutions to raise to INT16: by rules, by measuring, in rounds, and by search."""
