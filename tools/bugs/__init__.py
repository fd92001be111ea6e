"""Real numerical bugs of public projects, each reproduced small: ``table.py`` has the bugs, the rest are programs."""
