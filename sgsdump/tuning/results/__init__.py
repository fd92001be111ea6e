"""What comes of a search: plans verified in the hardware's integers, side by side, and their files."""
