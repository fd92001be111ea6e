"""What only the SDK's own commands (``tools/``) need."""
