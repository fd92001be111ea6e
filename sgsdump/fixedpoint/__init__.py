"""The plug-in for fixed point: calibrate, simulate, diagnose, cure and tune a model."""

from sgsdump.plugins import Command, Plugin

BEGIN, MAKE, DUMP = "start here", "quantise", "dump"
_COMMANDS = "sgsdump.fixedpoint.commands"

PLUGIN = Plugin(
    commands={
        "demo": Command(f"{_COMMANDS}.demo", "run the whole loop on a built-in model", BEGIN, after=""),
        "diagnose": Command(
            f"{_COMMANDS}.diagnose",
            "find where your model loses accuracy, in one report",
            BEGIN,
            after="demo",
        ),
        "cfg": Command(f"{_COMMANDS}.cfg", "write a template of a configuration file", BEGIN, after="diagnose"),
        "calibrate": Command(f"{_COMMANDS}.calibrate", "create the fixed model and compute the tensor ranges", MAKE),
        "cure": Command(f"{_COMMANDS}.cure", "rewrite the float model so that INT8 loses less", MAKE),
        "tune": Command(f"{_COMMANDS}.tune", "find and verify the convolutions that need INT16", MAKE),
        "simulate": Command(
            f"{_COMMANDS}.simulate",
            "run a float or fixed model and dump its layers",
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
        "explained": "sgsdump.fixedpoint.reports.notebook:show_explained",
        "plans": "sgsdump.fixedpoint.reports.notebook:show_plans",
        "plot of contributions": "sgsdump.fixedpoint.reports.axes:plot_contributions",
        "plot of plans": "sgsdump.fixedpoint.reports.axes:plot_plans",
        "text of a measured cause": "sgsdump.fixedpoint.reports.measured_cause:cause_text",
        "remedy of a measured cause": "sgsdump.fixedpoint.reports.measured_cause:remedy_text",
        "text of a cure": "sgsdump.fixedpoint.reports.cured:text",
    },
    renamed={"advise": f"{_COMMANDS}.renamed:advise_words", "repair": f"{_COMMANDS}.renamed:repair_words"},
    modules={"tuning": "sgsdump.fixedpoint.tuning"},
    names={
        "Cured": "sgsdump.fixedpoint.curing.cure",
        "cure": "sgsdump.fixedpoint.verbs.cure",
        "quant_params": "sgsdump.fixedpoint.quantisation.quant_file",
        "calibrate": "sgsdump.fixedpoint.verbs.calibrate",
        "FixedModel": "sgsdump.fixedpoint.verbs.calibrate",
        "simulate": "sgsdump.fixedpoint.verbs.simulate",
        "tune": "sgsdump.fixedpoint.verbs.tune",
        "Tuned": "sgsdump.fixedpoint.verbs.tuned",
        "Explained": "sgsdump.fixedpoint.verbs.explained",
        "advise": f"{_COMMANDS}.renamed",
        "Advised": f"{_COMMANDS}.renamed",
        "repair": f"{_COMMANDS}.renamed",
        "Repaired": f"{_COMMANDS}.renamed",
        "diagnose": "sgsdump.fixedpoint.verbs.diagnose",
        "Diagnosed": "sgsdump.fixedpoint.verbs.diagnosed",
    },
)
