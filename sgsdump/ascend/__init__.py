"""What the readers of Ascend dumps share: number tables, element codings, headers, file names."""
