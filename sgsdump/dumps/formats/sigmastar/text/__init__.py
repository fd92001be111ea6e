"""String dumps: a binary dump's headers with printed values; ``text.py`` has the grammar and the format."""
