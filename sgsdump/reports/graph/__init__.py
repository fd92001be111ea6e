"""Drawing of the compared network: operators, their groups, and their positions."""
