# Address, kind, strides of rows and columns, scale, zero point; descriptor of a file or -1, offset in it; address and
# number of the places to be picked, address of where their values go, and which of all values is the row's first.
Side = tuple[float, ...]
Size = tuple[int, int, int, int]  # rows and columns, of all and of a tile

INTERFACE: int
LANES: int
CHUNK: int

Channels = tuple[int, int, int, int, int]  # see channels_t; the address of its sums last

# Of each part, which is a list of tables, the sums and counts; the error where a file cannot be read, 0 if it is short.
def sums(
    parts: list[list[tuple[Side, Side, Size, Channels]]], scratch: int, /
) -> list[tuple[list[float], list[int]] | int]: ...

# Of a channels' sums (address, count) by the floor, LOST, the factor of the median and the least common error: how many
# are lost, the worst one and its RMSE.
def judged(
    sums: int, count: int, floor: float, lost: float, median: float, common: float, /
) -> tuple[int, int, float] | None: ...
def vectors() -> str: ...
def use(vectors: str, /) -> bool: ...
