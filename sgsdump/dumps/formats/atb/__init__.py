"""ATB tensor files and trees, as msit and msprobe dump them."""
