"""What pictures show of a tensor, and the range that is made of it: statistics, fits, the side files' ranges."""
