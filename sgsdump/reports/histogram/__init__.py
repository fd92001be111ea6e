"""Pictures of each layer's values against its calibrated range."""
