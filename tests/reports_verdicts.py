"""Forty verdicts as data: every kind of finding, good, bad, incomplete and not comparable."""

from collections.abc import Iterator
from dataclasses import replace

from sgsdump.comparison.account import Account, NotCompared
from sgsdump.comparison.agreement import Agreement
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.verdict import NOT_FINITE, OTHER_TENSOR, RESOLUTION, TUNE, Deciding, Recommendation, Verdict

WHOLE = Account(14, 14)
RMSE = Deciding("prob", "RMSE", 1.9199, 0.1, True)
FREE = Deciding("prob", "RMSE", 1.9199, None, True)
LAYER = Deciding("backbone/conv7", "relative error", 0.0312)
PASSING = Deciding("prob", "RMSE", 0.0163, 0.1, True)
ROUNDED = Deciding("lm_head", "RMSE", 3.1e-4, None, True)
ADD = {"rmse": 0.574, "cos": 0.8656, "rise": 0.485}


def lacking(count, *left_out):
    return Account(count, 14, left_out)


def program(kind="cause", layer="model.layers.3.mlp", op_type="aten.mm", figures=None, evidence="by value", **facts):
    """A finding on a program, with the line of its source."""
    return Finding(kind, layer, op_type, figures or {}, evidence, facts={"source": "model.py:87", **facts})


def of_program(cause, action="compare the operator", deciding=LAYER, layers=("model.layers.3.mlp",), **more):
    recommendation = Recommendation(action, "", layers)
    return Verdict(
        "differs",
        Account(212, 212),
        None,
        deciding,
        96,
        cause=cause,
        recommendation=recommendation,
        by_flow=True,
        **more,
    )


def measured(reason, figures, layer="block4/pw", op_type="CONV_2D", tensor="block4/dw/relu", kind="cause", **facts):
    facts = {"reason": reason, "input": tensor, **facts}
    return Finding(kind, layer, op_type, figures, "measured", (layer,), facts)


def diagnosed(cause, recommendation, explanation=None, deciding=RMSE, **more):
    return Verdict(
        "differs",
        WHOLE,
        False,
        deciding,
        10,
        cause=cause,
        explanation=explanation,
        recommendation=recommendation,
        by_flow=True,
        images=32,
        **more,
    )


def raising(*layers, after=0.0163, **expected):
    figures = {"error": 1.139, "error_after": after, "rate": 0.5, "rate_after": 0.709}
    return Recommendation("raise convolutions", "[CONV_CONFIG]\n…", layers, expected, figures)


def corrected(after=0.02):
    return Recommendation("correct the cause", measured={"error": 1.139, "error_after": after})


def situations() -> Iterator[tuple[str, Verdict]]:
    """Yield each situation with its verdict."""
    nothing = Recommendation("nothing")
    yield "two equal dumps", Verdict("equal", WHOLE, recommendation=nothing)
    yield "two equal dumps with NaN in the same places", Verdict("equal", WHOLE, not_finite=2, recommendation=nothing)
    yield "within the limits", Verdict("differs", WHOLE, True, PASSING, recommendation=nothing, by_flow=True)
    yield (
        "within the resolution of the type",
        Verdict("differs", WHOLE, True, Deciding("prob", RESOLUTION, 0.14, None, True), recommendation=nothing),
    )
    yield "rounding to bfloat16", Verdict(
        "within rounding", Account(212, 212), None, ROUNDED, 180, recommendation=nothing,
        explanation=Finding("rounding", facts={"types": "bfloat16"}),
    )  # fmt: skip
    yield "rounding inside modules alone", Verdict(
        "within rounding", Account(212, 212), None, ROUNDED, 40, recommendation=nothing,
        explanation=Finding("rounding", facts={"types": "bfloat16", "inside": "model.layers.0.attn.softmax"}),
    )  # fmt: skip
    yield "rounding of two runtimes", Verdict("within rounding", WHOLE, None, ROUNDED, 9, recommendation=nothing)
    yield "a fixed model, from error metrics only", Verdict(
        "differs", WHOLE, None, FREE, 14, cause=Finding("cause", "block2/add", "ADD", ADD, "by figures"),
        recommendation=Recommendation("find convolutions", TUNE, ("block2/add",)), by_flow=True,
    )  # fmt: skip
    yield "the same, with limits", Verdict(
        "differs", WHOLE, False, RMSE, 10, cause=Finding("cause", "block2/add", "ADD", ADD, "by figures"),
        recommendation=Recommendation("find convolutions", TUNE, ("block2/add",)), by_flow=True,
    )  # fmt: skip
    yield "two back-ends, one operator differs", Verdict(
        "differs", WHOLE, False, RMSE, 3, by_flow=True,
        cause=Finding("cause", "up/resize", "Resize", {"rmse": 0.31, "cos": 0.97, "rise": 0.31}, "by value"),
        recommendation=Recommendation("compare the operator", TUNE, ("up/resize",)),
    )  # fmt: skip
    yield "NaN in the sample", Verdict(
        "differs", WHOLE, False, Deciding("score", NOT_FINITE, float("inf"), None, True), 3, 3,
        cause=Finding("not finite", "norm/div", "Div", {"sample_nan": 5.0, "benchmark_inf": 2.0}, names=("norm/div",)),
        recommendation=Recommendation("compare the operator", TUNE, ("norm/div",)),
    )  # fmt: skip
    yield "another tensor of the same name", Verdict(
        "differs", WHOLE, False, Deciding("conv1_xx", OTHER_TENSOR, 0.8), 1,
        cause=Finding(
            "another tensor",
            "conv1_xx",
            "CONV_2D",
            facts={"found": "relu1, the output of PRELU (COS 1.000000, RMSE 0.000001)"},
        ),
        recommendation=Recommendation("compare the operator", TUNE, ("conv1_xx",)),
    )  # fmt: skip
    yield "different inputs", Verdict(
        "differs", WHOLE, None, FREE, 14, recommendation=Recommendation("use the same input"),
        cause=Finding("environment", "data", figures={"likeness": 0.02}, facts={"what": "inputs", "argument": "data"}),
    )  # fmt: skip
    missing = [NotCompared(name, "missing", "not in the sample", "output") for name in ("score", "boxes")]
    yield "missing outputs, the rest good", Verdict(
        "differs", lacking(12, *missing), False, PASSING, recommendation=Recommendation("dump what is missing"),
    )  # fmt: skip
    yield "layers that cannot be compared", Verdict(
        "differs", lacking(11, *(NotCompared(f"head{i}", "failed", "shapes differ") for i in range(3))), False, PASSING,
        recommendation=Recommendation("make layers comparable"),
    )  # fmt: skip
    yield (
        "nothing could be compared",
        Verdict("not comparable", Account(0, 14, (NotCompared("conv1", "only in benchmark", "no such name"),))),
    )
    yield "bad, and an output missing", Verdict(
        "differs", lacking(13, NotCompared("boxes", "missing", "not in the sample", "output")), False, RMSE, 10,
        cause=Finding("cause", "block2/add", "ADD", ADD, "by figures"),
        recommendation=Recommendation("find convolutions", TUNE), by_flow=True,
    )  # fmt: skip
    yield (
        "lost channels in good layers",
        Verdict(
            "differs", WHOLE, True, PASSING, recommendation=Recommendation("keep channels", layers=("block2/dw/relu",))
        ),
    )
    argument = program("argument", op_type="aten.layer_norm", what="argument", argument="eps", sample="1e-05",
                       benchmark="1e-06", module="Norm")  # fmt: skip
    yield "a program: an argument differs", of_program(argument, "make calls alike")
    weight = program("argument", op_type="aten.linear", figures={"error": 0.0119}, what="weight", argument="weight",
                     sample="", benchmark="")  # fmt: skip
    yield "a program: a weight differs", of_program(weight, "make calls alike")
    reads = program("argument", op_type="aten.add", figures={"error": 0.4}, what="reads", argument="other",
                    sample="layers.2.attn", benchmark="layers.2.norm")  # fmt: skip
    yield "a program: an operator reads another tensor", of_program(reads, "make calls alike")
    outside = {
        "index": 7.0,
        "value": 1.25,
        "reference": 1.0,
        "error": 64.0,
        "bound": 2.0,
        "outside": 12.0,
        "count": 4096.0,
    }
    yield (
        "a program: an operator outside its bound",
        of_program(program(figures=outside, evidence="measured", dtype="bfloat16"), "change the operator"),
    )
    yield "a program: an operator on one side only", of_program(
        Finding("cause", "clamp", "aten.clamp", {"error": 0.2}, "by value", ("model.layers.3",),
                {"only_in": "sample", "source": "model.py:12"})
    )  # fmt: skip
    sums = {"additions": 4096.0, "error": 0.0021, "benchmark_error": 2.2e-4}
    yield (
        "a program: a sum in a narrow type",
        of_program(program(figures=sums, evidence="by value", how="accumulation", dtype="bfloat16", added="aten.add_")),
    )
    yield (
        "a program: quantised weights differ",
        of_program(program(figures={"times": 3.1}, evidence="measured", how="packed"), "change the operator"),
    )
    yield "a program: between two rounds", of_program(
        program("between rounds", "aten.div", "aten.div", **{"sample source": "sample.py:9", "argument": "other"},
                sample="1.7", benchmark="0.7"), "make calls alike",
    )  # fmt: skip
    yield "a program: another rank", of_program(program(figures={"error": 0.3}, collective="all_reduce"))
    yield "a program: inside a compiled graph", of_program(program(figures={"error": 0.3}, compiled="yes"))
    magnified = Finding("magnified", "model.layers.9", "aten.sub", {"times": 410.0, "error": 0.02, "before": 5e-5},
                        "by value", facts={"rounded": "model.layers.2"})  # fmt: skip
    yield "a program: rounding is magnified", of_program(None, "nothing", explanation=magnified)
    largest = measured("8 bits", {"gives_back": 0.88, "brings": 0.92, "own": 1.1, "inherited": 0.2})
    expected = {"error": 1.06, "error_after": 0.0189}
    yield "diagnose: one tensor", diagnosed(largest, raising("block2/dw/relu", "block4/dw/relu", **expected))
    yield (
        "diagnose: weights",
        diagnosed(
            measured("8 bits", {"gives_back": 0.5, "brings": 0.6, "input_brings": 0.1, "weights_bring": 0.55}),
            Recommendation(
                "use a scale per channel", "--quant-level L2", measured={"error": 1.139, "error_after": 0.05}
            ),
        ),
    )
    spread = Finding("spread", figures={"error": 0.4, "gives_back": 0.83}, evidence="measured", names=("a", "b", "c"))
    yield "diagnose: spread over many", diagnosed(None, raising("a", "b", "c"), spread)
    yield (
        "diagnose: a clipped range",
        diagnosed(measured("clipped", {"gives_back": 0.7, "brings": 0.7}), Recommendation("correct the cause")),
    )
    yield (
        "diagnose: the first convolution",
        diagnosed(measured("picture", {"brings": 0.8}, "conv0", tensor="image"), None),
    )
    normalised = {"mean_told_0": 0.0, "std_told_0": 1.0, "mean_done_0": 127.5, "std_done_0": 127.5}
    yield (
        "diagnose: two normalisations",
        diagnosed(
            measured("normalisation", {"levels": 100.0, **normalised}, tensor="data", by="preprocess"), corrected()
        ),
    )
    yield (
        "diagnose: swapped colours",
        diagnosed(
            measured("channel order", {"levels": 90.0}, tensor="data", by="preprocess", order="RGB"), corrected()
        ),
    )
    odd = {"error": 1.1, "error_after": 0.1, "times": 6.0, "of": 32.0, "wide": 4.0, "wide_after": 1.0}
    yield (
        "diagnose: an odd calibration image",
        diagnosed(
            Finding("cause", "17.png", "", odd, "measured", ("17.png",), {"reason": "odd picture", "input": "17.png"}),
            corrected(0.1),
        ),
    )
    within = measured("8 bits", {"gives_back": 0.27, "brings": 0.75, "error": 0.0166, "left": 0.01}, kind="part")
    yield "diagnose: good, with assumptions", Verdict(
        "differs", WHOLE, True, PASSING, explanation=within, recommendation=nothing, by_flow=True, images=32,
        assumptions=("mean 0 and std 1: no input_config.ini was given",),
        agreement=Agreement("top1-agreement", 31, 32),
    )  # fmt: skip
    yield "diagnose: no remedy helps", diagnosed(largest, None)
    few = {"together": 0.9, "error": 0.35, "count": 4.0}
    yield (
        "diagnose: a few tensors together",
        diagnosed(measured("8 bits", few), raising("a", "block4/dw/relu", "c", "d")),
    )
    picture = measured("picture", {"left": 0.119, "error": 0.0294}, "conv1", kind="part")
    yield (
        "diagnose: only an internal layer exceeds the limits",
        diagnosed(None, nothing, picture, Deciding("block1/pw", "RMSE", 0.129, 0.1)),
    )
    yield (
        "diagnose: a plan that is not enough",
        diagnosed(largest, replace(raising("block4/dw/relu", after=0.4), within=False)),
    )
    same = Finding("cause", figures={"error": 0.799, "left": 0.794}, evidence="measured", facts={"reason": "not INT8"})
    yield "tune: INT16 does not help", diagnosed(same, Recommendation("find the cause", "sgsdump diagnose -m net.onnx"))
    of_quantised = Finding(
        "cause", "conv3.weight", "", {"brings": 0.6, "gives_back": 0.55}, "measured", (), {"reason": "weight"}
    )
    yield (
        "a QDQ model: one weight",
        diagnosed(
            of_quantised,
            Recommendation(
                "keep operators in float", layers=("/conv3/Conv",), measured={"error": 0.2, "error_after": 0.03}
            ),
        ),
    )
    yield (
        "a QDQ model: nodes without names",
        diagnosed(
            of_quantised,
            Recommendation("name the nodes", "", (), {}, {"error": 0.23, "error_after": 0.07, "images": 2}, False),
        ),
    )
