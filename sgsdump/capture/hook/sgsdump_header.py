"""The text in front of an ATB tensor's payload; of a tensor of which only statistics or a description are dumped, it is
the whole file. Written by the hook and, where it is the whole file, by the parent."""

# ATB's numbers of element types.
ATB_TYPES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
    "int64": 9, "uint64": 10, "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27,
    "complex32": 33, "float8_e5m2": 35, "float8_e4m3fn": 36, "float8_e8m0fnu": 37,
}  # fmt: skip
FORMAT_ND = 2
STATISTICS = ("max", "min", "mean", "l2norm")


def header_of(dtype, shape, size):
    """In front of a payload of ``size`` bytes. Raises KeyError for a type that ATB has no number for."""
    return _header(dtype, shape, size, (), [f"$Object.data=0,{size}"])


def header_alone(dtype, shape, stats):
    """The file of a tensor that is only described, or of which there are statistics only; KeyError as above."""
    known = [f"{name}={stats[name]!r}" for name in STATISTICS if stats and stats.get(name) is not None]
    return _header(dtype, shape, 0, known, ())


def _header(dtype, shape, size, statistics, data):
    lines = ["$Version=1.0", f"$Object.Count={int(bool(size))}", f"$Object.Length={size}"]
    lines += [f"format={FORMAT_ND}", f"dtype={ATB_TYPES[dtype]}", f"dims={','.join(str(int(one)) for one in shape)}"]
    return "\n".join([*lines, *statistics, *data, "$End=1\n"]).encode("ascii")
