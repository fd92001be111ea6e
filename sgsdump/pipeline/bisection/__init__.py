"""Where two runs of a model first differ."""
