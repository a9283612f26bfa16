#!/bin/sh
# Installs Tracehound from this folder: ./install.sh [[--prefix] PREFIX], by default ~/.local, and /usr/local for root.
# Removing it again: ./install.sh --remove [[--prefix] PREFIX].
set -eu
here=$(cd "$(dirname "$0")" && pwd)
remove=
prefix=
usage() { echo "usage: install.sh [--remove] [[--prefix] PREFIX]; PREFIX is ~/.local, and /usr/local for root"; }
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --remove) remove=1 ;;
    --prefix=?*) prefix=${1#--prefix=} ;;
    --prefix)
        shift
        prefix=${1:-}
        [ -n "$prefix" ] || {
            usage >&2
            exit 2
        }
        ;;
    -* | "")
        echo "install.sh: unknown option '$1'" >&2
        usage >&2
        exit 2
        ;;
    *) prefix=$1 ;;
    esac
    shift
done
if [ -z "$prefix" ] && [ "$(id -u)" = 0 ]; then
    prefix=/usr/local
fi
prefix=${prefix:-$HOME/.local}
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
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
