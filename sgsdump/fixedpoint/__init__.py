"""The plug-in for fixed point: calibrate, simulate, diagnose, cure and tune a model."""

from sgsdump.plugins import Command, Plugin

BEGIN, MAKE, DUMP = "begin with", "make the fixed model", "dump"
_COMMANDS = "sgsdump.fixedpoint.commands"

PLUGIN = Plugin(
    commands={
        "demo": Command(f"{_COMMANDS}.demo", "the whole loop on an embedded sample", BEGIN, after=""),
        "diagnose": Command(
            f"{_COMMANDS}.diagnose",
            "the whole loop on your model: where accuracy is lost and what to do, as one page",
            BEGIN,
            after="demo",
        ),
        "cfg": Command(
            f"{_COMMANDS}.cfg", "write a copy of a configuration file to start from", BEGIN, after="diagnose"
        ),
        "calibrate": Command(f"{_COMMANDS}.calibrate", "pictures + float model -> fixed model and tensor ranges", MAKE),
        "cure": Command(f"{_COMMANDS}.cure", "rewrite the float model so that 8 bits lose less", MAKE),
        "advise": Command(f"{_COMMANDS}.advise", "which convolutions need INT16 inputs, and why", MAKE),
        "repair": Command(f"{_COMMANDS}.repair", "raise convolutions to INT16 until the outputs are good", MAKE),
        "tune": Command(f"{_COMMANDS}.tune", "find and verify the smallest set of INT16 convolutions", MAKE),
        "simulate": Command(
            f"{_COMMANDS}.simulate",
            "run one picture through a float or fixed model, dump its layers",
            DUMP,
            after="dump",
        ),
    },
    models={
        "sim": "sgsdump.fixedpoint.sim.readers:SIM",
        "img": "sgsdump.fixedpoint.sim.readers:IMAGE",
    },
    views={
        "diagnosed": "sgsdump.fixedpoint.reports.notebook:show_diagnosed",
        "advised": "sgsdump.fixedpoint.reports.notebook:show_advised",
        "plans": "sgsdump.fixedpoint.reports.notebook:show_plans",
        "plot of an advice": "sgsdump.fixedpoint.reports.axes:plot_advice",
        "plot of plans": "sgsdump.fixedpoint.reports.axes:plot_plans",
        "text of a measured cause": "sgsdump.fixedpoint.reports.measured_cause:cause_text",
        "remedy of a measured cause": "sgsdump.fixedpoint.reports.measured_cause:remedy_text",
        "text of a cure": "sgsdump.fixedpoint.reports.cured:text",
    },
    modules={"tuning": "sgsdump.fixedpoint.tuning"},
    names={
        "Cured": "sgsdump.fixedpoint.curing.cure",
        "cure": "sgsdump.fixedpoint.verbs.cure",
        "quant_params": "sgsdump.fixedpoint.quantisation.quant_file",
        "calibrate": "sgsdump.fixedpoint.verbs.calibrate",
        "FixedModel": "sgsdump.fixedpoint.verbs.calibrate",
        "simulate": "sgsdump.fixedpoint.verbs.simulate",
        "advise": "sgsdump.fixedpoint.verbs.advise",
        "Advised": "sgsdump.fixedpoint.verbs.advise",
        "repair": "sgsdump.fixedpoint.verbs.repair",
        "Repaired": "sgsdump.fixedpoint.verbs.repair",
        "tune": "sgsdump.fixedpoint.verbs.tune",
        "Tuned": "sgsdump.fixedpoint.verbs.tune",
        "diagnose": "sgsdump.fixedpoint.verbs.diagnose",
        "Diagnosed": "sgsdump.fixedpoint.verbs.diagnosed",
    },
)
