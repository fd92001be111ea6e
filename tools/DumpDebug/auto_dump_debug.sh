#!/bin/sh
# auto_dump_debug.sh at its place in the SDK; the work is done by the file of this name in the folder tools.
exec sh "$(dirname -- "$(readlink -f -- "$0")")/../auto_dump_debug.sh" "$@"
