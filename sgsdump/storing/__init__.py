"""The parts of reading and writing dumps that several formats share, none of which believes a file."""
