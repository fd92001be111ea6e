"""From pictures to the range of a tensor: statistics, fits, the side files' ranges."""
