INTERFACE: int
LANES: int

def lane_sums(x: int, weights: int, out: int, /, *shape: int) -> None: ...
