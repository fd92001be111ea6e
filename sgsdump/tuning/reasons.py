"""What can be at fault before any INT16, by the word that stands in a finding's facts."""

WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED = "weights per tensor", "odd picture", "unlike pictures", "wide ranges", "clipped"
FLAT, OPERATOR, NORMALISATION, ORDER = "flat pictures", "operator", "normalisation", "channel order"
STILL, UNTRAINED = "hardly moved", "unlike training"
REASONS = (WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED, FLAT, OPERATOR, NORMALISATION, ORDER, STILL, UNTRAINED)
