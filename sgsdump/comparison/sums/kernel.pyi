# Address, kind, strides of rows and columns, scale, zero point; descriptor of a file or -1, offset in it; address and
# number of the places to be picked, address of where their values go, and which of all values is the row's first.
Side = tuple[float, ...]
Size = tuple[int, int, int, int]  # rows and columns, of all and of a tile

INTERFACE: int
LANES: int
CHUNK: int

def part_sums(tables: list[tuple[Side, Side, Size]], scratch: int, /) -> tuple[list[float], list[int]]: ...
def vectors() -> str: ...
def use(vectors: str, /) -> bool: ...
