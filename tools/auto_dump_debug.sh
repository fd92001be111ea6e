#!/bin/sh
# Compare two dumps, or a float and a fixed model, layer by layer, as the SDK's auto_dump_debug.sh does:
#   auto_dump_debug.sh SDK_DIR sample.bin benchmark.bin
#   auto_dump_debug.sh SDK_DIR float_model fixed_model image label Classification|Detection|Unknown preprocess.py
# $PYTHON names the Python to use (default: python3). Any shell runs it: sh auto_dump_debug.sh too.
exec "${PYTHON:-python3}" "$(dirname -- "$(readlink -f -- "$0")")/auto_dump_debug.py" "$@"
