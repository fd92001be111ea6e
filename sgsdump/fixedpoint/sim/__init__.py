"""The SDK's own model files: float.sim, cmodel_float.sim, fixed.sim and the offline image (.img)."""
