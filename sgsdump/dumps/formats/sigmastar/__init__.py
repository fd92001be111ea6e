"""SigmaStar dumps: binary and text files, scales and padding."""
