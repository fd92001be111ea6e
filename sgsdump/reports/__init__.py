"""How results reach the user: text, CSV, JSON and pictures, a folder for each kind of result. Nothing here prints."""
