Side = tuple[int, int, int, int, float, int]  # address, kind, strides of rows and columns, scale, zero point
Size = tuple[int, int, int, int]  # rows and columns, of all and of a tile

INTERFACE: int
LANES: int
CHUNK: int

def add_pair(a: Side, b: Side, size: Size, totals: int, counts: int, scratch: int, /) -> None: ...
def vectors() -> str: ...
def use(vectors: str, /) -> bool: ...
