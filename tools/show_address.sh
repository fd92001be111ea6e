#!/bin/sh
# Print the memory map and the call stacks of a crashed program, as the SDK's show_address.sh does:
#   show_address.sh EXECUTABLE CORE
# Any shell runs it: sh show_address.sh too.
set -eu

fail() {
    echo "show_address.sh: error: $1" >&2
    exit 2
}

# ELF's file types: 2 and 3 an executable, 4 a core file; 0 stands for what is no ELF file.
type_of() {
    [ "$(od -An -tx1 -N4 "$1" | tr -d ' \n')" = 7f454c46 ] || {
        echo 0
        return
    }
    # shellcheck disable=SC2046
    set -- $(od -An -tu1 -j16 -N2 "$1")
    echo $((${1:-0} + ${2:-0})) # one of the bytes is 0, whatever the byte order
}

[ $# -eq 2 ] || fail "give the crashed executable and its core file: show_address.sh EXECUTABLE CORE"
for file in "$1" "$2"; do
    [ -f "$file" ] || fail "there is no file $file"
    [ -r "$file" ] || fail "$file cannot be read"
done
[ "$(type_of "$2")" = 4 ] || fail "$2 is not a core file; name the executable first, then its core"
case "$(type_of "$1")" in
2 | 3) ;;
*) fail "$1 is not an executable; name the executable first, then its core" ;;
esac
command -v gdb >/dev/null || fail "gdb is not installed; install it with your system's package manager (apt-get install gdb)"
exec gdb --batch --nx -ex "info proc mappings" -ex "info sharedlibrary" -ex "thread apply all backtrace" "$1" "$2"
