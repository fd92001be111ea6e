"""What can be at fault before any INT16, by the word that stands in a finding's facts."""

WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED = "weights per tensor", "odd picture", "unlike pictures", "wide ranges", "clipped"
FLAT, OPERATOR, NORMALISATION, ORDER = "flat pictures", "operator", "normalisation", "channel order"
STILL, UNTRAINED = "hardly moved", "unlike training"
# What shows that input_config.ini is wrong: the preprocess file, or the fixed model, says otherwise.
BY_PREPROCESS, BY_FIXED = "preprocess", "fixed"
CONTRADICTED = (BY_PREPROCESS, BY_FIXED)
# Causes located at layers of the model. With any other cause, no layer is blamed.
IN_NETWORK = (WEIGHTS, CLIPPED, WIDE, OPERATOR)
REASONS = (WEIGHTS, ODD, UNLIKE, WIDE, CLIPPED, FLAT, OPERATOR, NORMALISATION, ORDER, STILL, UNTRAINED)
