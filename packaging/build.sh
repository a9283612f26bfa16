#!/usr/bin/env bash
# Builds what is shipped: build.sh [--libraries] FOLDER. With --libraries only what is preloaded.
#
#     heaptrace…, libtracehound.so, libtracehound_linked.a    for glibc 2.17 and newer, without libgcc_s.so.1
#
# By zig's linker, which knows the names of every glibc; it and cargo-zigbuild come from PyPI into a folder below target.
# Where they cannot be had, everything is built for the glibc of this machine, which the packages then say.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
GLIBC=2.17
packages=(-p tracehound-preload)
products=(libtracehound.so)
if [ "$1" = --libraries ]; then
    shift
else
    packages+=(-p tracehound-linked -p heaptrace -p heaptrace-replay -p heaptrace-fleet)
    products+=(libtracehound_linked.a heaptrace heaptrace-replay heaptrace-fleet)
fi
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$root"
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
unset CARGO_TARGET_DIR
say() { echo "build.sh: $*" >&2; }

# One at a time, as Cargo does.
exec 9>"$target/packaging.lock"
flock 9

tools=$target/packaging-tools
if ! cmp -s packaging/requirements.txt "$tools/requirements.txt"; then
    rm -rf "$tools"
    if python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --disable-pip-version-check -r packaging/requirements.txt; then
        cp packaging/requirements.txt "$tools/"
    fi >&2
fi

# Only what has changed, so that what is made of it is not made again.
bring() { # from, to
    if ! cmp -s "$1" "$2"; then
        cp "$1" "$2.new"
        mv "$2.new" "$2"
    fi
}

# What everybody can build: for the C library of this machine.
for_this_machine() {
    say "$1: what is built needs the glibc of this machine or a newer one"
    cargo build --profile dist --target-dir "$target" "${packages[@]}"
    for product in "${products[@]}"; do bring "$target/dist/$product" "$folder/$product"; done
    exit 0
}

[ "$(uname -m)" = x86_64 ] || for_this_machine "other versions of glibc are known for x86-64 alone"
[ -e "$tools/requirements.txt" ] || for_this_machine "ziglang and cargo-zigbuild cannot be had from PyPI"

TRACEHOUND_UNWINDER_INSIDE=1 PATH=$tools/bin:$PATH \
    cargo zigbuild --profile dist --target "x86_64-unknown-linux-gnu.$GLIBC" --target-dir "$target" "${packages[@]}" ||
    {
        # What the older C library lacks must not be found out by those who install it.
        say "it cannot be built for glibc $GLIBC, see above"
        exit 1
    }
for product in "${products[@]}"; do
    built=$target/x86_64-unknown-linux-gnu/dist/$product
    case $product in *.so) packaging/loadable.py "$built" ;; esac
    bring "$built" "$folder/$product"
done

shipped=()
for product in "${products[@]}"; do
    case $product in *.a) ;; *) shipped+=("$folder/$product") ;; esac
done
packaging/needs.py --at-most "$GLIBC" "${shipped[@]}"
