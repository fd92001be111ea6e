"""Pictures, arrays and preprocess files become feeds."""
