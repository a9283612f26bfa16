#!/bin/sh
# Installs Tracehound from this folder: ./install.sh [PREFIX], by default ~/.local, and /usr/local for root.
# Removing it again: ./install.sh --remove [PREFIX].
set -eu
here=$(cd "$(dirname "$0")" && pwd)
remove=
if [ "${1:-}" = --remove ]; then
    remove=1
    shift
fi
if [ "$(id -u)" = 0 ]; then
    prefix=${1:-/usr/local}
else
    prefix=${1:-$HOME/.local}
fi
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || {
    echo "install.sh: this is a build for Linux on x86-64" >&2
    exit 1
}
cd "$here"
find bin lib include share -type f | while IFS= read -r file; do
    if [ -n "$remove" ]; then
        rm -f "$prefix/$file"
    else
        mkdir -p "$prefix/$(dirname "$file")"
        # A program that runs keeps its file: the new one takes the name.
        cp "$file" "$prefix/$file.new.$$"
        chmod "$(stat -c %a "$file")" "$prefix/$file.new.$$"
        mv -f "$prefix/$file.new.$$" "$prefix/$file"
    fi
done
[ -z "$remove" ] || exit 0
"$prefix/bin/heaptrace" --version
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) echo "$prefix/bin is not in PATH: add it, or call $prefix/bin/heaptrace" ;;
esac
