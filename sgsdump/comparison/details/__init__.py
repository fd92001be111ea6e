"""What a report shows of one selected layer, made in one pass over a pair of tensors and mergeable over pictures."""
