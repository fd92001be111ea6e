"""Reading, writing and mapping of files, untrusted formats, and process-wide settings."""
