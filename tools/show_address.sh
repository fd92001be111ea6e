#!/usr/bin/env bash
# Print the memory map and the call stacks of a crashed program, as the SDK's show_address.sh does:
#   show_address.sh EXECUTABLE CORE
set -euo pipefail

fail() {
    echo "show_address.sh: error: $1" >&2
    exit 2
}

[ $# -eq 2 ] || fail "give the crashed executable and its core file: show_address.sh EXECUTABLE CORE"
for file in "$1" "$2"; do
    [ -f "$file" ] || fail "there is no file $file"
done
[ "$(head -c 4 "$2" | tail -c 3)" = ELF ] || fail "$2 is not a core file; name the executable first, then its core"
command -v gdb >/dev/null || fail "gdb is not installed; install it with your system's package manager (apt-get install gdb)"
exec gdb --batch --nx -ex "info proc mappings" -ex "info sharedlibrary" -ex "thread apply all backtrace" "$1" "$2"
