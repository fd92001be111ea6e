"""Which files go into the package. Everything else stands in pyproject.toml.

``cfg/`` stays at the top of the checkout, where users look for it; installed, it is the folder ``sgsdump/cfg``.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["sgsdump", "sgsdump.*"]), "sgsdump.cfg"],
    package_dir={"sgsdump.cfg": "cfg"},
    include_package_data=False,  # only what the next line names, whatever MANIFEST.in takes into the sdist
    package_data={
        "sgsdump": [
            "py.typed",
            "samples/*",
            "capture/hook/*.py",
            "reports/html/page.*",
            "reports/*/*.css",
            "reports/*/schema.json",
        ],
        "sgsdump.cfg": ["*.txt", "*.ini"],
    },
)
