"""Values of both sides of a layer for the tensor viewer of the page."""
