"""All that knows the bytes, scales and padding of SigmaStar's dumps."""
