from formats.conformance import Conformance


class TestConformance(Conformance):
    format = "npz"
