"""Writing a dump in another format or form, in parts or as one, and what the format cannot hold."""
