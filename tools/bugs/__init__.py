"""Real numerical bugs of public projects, each reproduced small: ``table.py`` lists them, the other files are programs."""
