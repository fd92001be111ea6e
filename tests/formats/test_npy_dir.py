from formats.conformance import Conformance


class TestConformance(Conformance):
    format = "npy_dir"
    listing = "sgsdump.json"
