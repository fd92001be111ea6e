"""Layer outputs that AIMET wrote."""
