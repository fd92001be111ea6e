"""Where input_config.ini lets the board feed a picture otherwise than the network was trained with.

Pictures are simulated in the training format; what the board's conversion changes is in no number, so the user is
warned.
"""

from __future__ import annotations

from sgsdump.sidecars.input_config import InputConfig


def board_notes(config: InputConfig) -> list[str]:
    """One line for every picture input that is GRAY on one side alone, or YUV_NV12."""
    notes = []
    for entry in config.inputs:
        trained, given = entry.training_format, entry.input_format
        if given == "YUV_NV12":
            notes.append(
                f"input {entry.name!r} is YUV_NV12 on the board; it is simulated as {trained}, so what the conversion "
                f"from YUV changes is not seen here"
            )
        elif (trained == "GRAY") != (given == "GRAY"):
            notes.append(
                f"input {entry.name!r} is trained as {trained} but {given} in input_formats; it is simulated as "
                f"{trained}, and the numbers of channels differ: is that meant?"
            )
    return notes
