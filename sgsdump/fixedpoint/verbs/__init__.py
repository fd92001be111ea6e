"""What a user calls: a function for each thing that sgsdump does to a model, by the name of its command."""
