#!/bin/sh
# show_address.sh at its place in the SDK; the work is done by the file of this name in the folder tools.
exec sh "$(dirname -- "$(readlink -f -- "$0")")/../show_address.sh" "$@"
