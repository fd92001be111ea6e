"""What only the SDK's own commands (``tools/``) need: their file trees, texts, orders and options."""
