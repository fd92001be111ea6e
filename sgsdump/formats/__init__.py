"""The dump formats, in the order in which ``open_dump`` asks them whether a file is theirs."""

from sgsdump.family import Family

FORMATS = Family(
    "format",
    {
        "sigmastar_bin": "sgsdump.formats.sigmastar_bin:FORMAT",
        "sigmastar_text": "sgsdump.formats.sigmastar_text:FORMAT",
    },
)
