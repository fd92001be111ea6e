"""Which files go into the package, and its compiled parts. Everything else stands in pyproject.toml.

``cfg/`` stays at the top of the checkout, where users look for it; installed, it is the folder ``sgsdump/cfg``.

The compiled parts are optional: where they cannot be built, sgsdump is installed without; numpy and torch
do the same.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup

# One wheel serves every Python from 3.10 on; free-threaded ones have no stable ABI.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")


def compiled(source: str, *more: str) -> Extension:
    return Extension(
        source.removesuffix(".c").replace("/", "."),
        [source, *more],
        depends=[str(header) for header in Path(source).parent.glob("*.h")],
        # No fused multiply-add: every processor, and numpy, gives the same digits. And choices between floats go into
        # vectors where no trap waits for a comparison, which changes no digit (GCC; clang does so anyway).
        extra_compile_args=[] if os.name == "nt" else ["-O3", "-g0", "-ffp-contract=off", "-fno-trapping-math"],
        define_macros=[("Py_LIMITED_API", "0x030A0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
        optional=True,
    )


# What a program is hooked with stands in no package: its own Python loads it from the folder of the hook.
KERNELS = (
    ("sgsdump/comparison/sums/kernel.c",),
    ("sgsdump/tensors/one_pass/kernel.c",),
    ("sgsdump/fixedpoint/quantisation/ranges/kernel.c",),
    ("sgsdump/capture/programs/hook/sgsdump_kernel.c", "sgsdump/capture/programs/hook/sgsdump_operators.c"),
)

setup(
    ext_modules=[compiled(*sources) for sources in KERNELS],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if STABLE_ABI else {},
    packages=[*find_packages(include=["sgsdump", "sgsdump.*"]), "sgsdump.cfg"],
    package_dir={"sgsdump.cfg": "cfg"},
    include_package_data=False,  # only what the next line names, whatever MANIFEST.in takes into the sdist
    package_data={
        "sgsdump": [
            "py.typed",
            "comparison/sums/kernel.pyi",
            "tensors/one_pass/kernel.pyi",
            "fixedpoint/quantisation/ranges/kernel.pyi",
            "samples/*",
            "capture/programs/hook/*.py",
            "capture/programs/hook/for_torch/*.py",
            "capture/programs/hook/sgsdump_kernel.pyi",
            "reports/html/page/*",
            "reports/*/*.css",
            "reports/schemas/*.json",
        ],
        "sgsdump.cfg": ["*.txt", "*.ini"],
    },
)
