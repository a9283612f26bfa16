#!/usr/bin/env bash
# Builds what is shipped: build.sh [--libraries | --heaptrace] FOLDER. With --libraries only what is preloaded; with --heaptrace
# what is preloaded or linked, and heaptrace.
#
#     libtracehound.so, libtracehound.a, heaptrace-replay    for glibc 2.17 and newer, without libgcc_s.so.1
#     heaptrace, heaptrace-fleet                             static programs, which need no C library of the system
#
# heaptrace carries the libraries inside. zig links, which knows the names of every glibc and has musl; it and cargo-zigbuild
# come from PyPI into a folder below target. Where they cannot be had, everything is built for the glibc of this machine,
# which the packages then say; where Rust's library for musl cannot be had, the programs are built for glibc 2.17, too.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
GLIBC=2.17
MUSL=x86_64-unknown-linux-musl
libraries=(-p tracehound-preload)
products=(libtracehound.so)
programs=()
case $1 in
    --libraries) shift ;;
    --heaptrace)
        shift
        libraries+=(-p tracehound-linked)
        products+=(libtracehound_linked.a)
        programs+=(heaptrace)
        ;;
    *)
        libraries+=(-p tracehound-linked -p heaptrace-replay)
        products+=(libtracehound_linked.a heaptrace-replay)
        programs+=(heaptrace heaptrace-fleet)
        ;;
esac
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

# What is linked into programs, made of what was built, and the programs, which carry it.
programs() { # where they are built, command…
    local built=$1 name carried=$folder/carried
    shift
    [ "${#programs[@]}" -gt 0 ] || return 0
    preload/linked/archive.sh "$folder"
    mkdir -p "$carried"
    strip --strip-debug -o "$folder/stripped.so" "$folder/libtracehound.so"
    bring "$folder/stripped.so" "$carried/libtracehound.so"
    rm "$folder/stripped.so"
    for name in libtracehound.a tracehound-wrap.opts; do bring "$folder/$name" "$carried/$name"; done
    bring preload/include/tracehound.h "$carried/tracehound.h"
    TRACEHOUND_CARRIED=$carried "$@" "${programs[@]/#/--package=}"
    for name in "${programs[@]}"; do bring "$target/$built/$name" "$folder/$name"; done
}

# What everybody can build: for the C library of this machine.
for_this_machine() {
    say "$1: what is built needs the glibc of this machine or a newer one"
    cargo build --profile dist --target-dir "$target" "${libraries[@]}"
    for product in "${products[@]}"; do bring "$target/dist/$product" "$folder/$product"; done
    programs dist cargo build --profile dist --target-dir "$target"
    exit 0
}

[ "$(uname -m)" = x86_64 ] || for_this_machine "other versions of glibc are known for x86-64 alone"
[ -e "$tools/requirements.txt" ] || for_this_machine "ziglang and cargo-zigbuild cannot be had from PyPI"
export PATH=$tools/bin:$PATH
for_old_glibc=(cargo zigbuild --profile dist --target "x86_64-unknown-linux-gnu.$GLIBC" --target-dir "$target")

TRACEHOUND_UNWINDER_INSIDE=1 "${for_old_glibc[@]}" "${libraries[@]}" ||
    {
        # What the older C library lacks must not be found out by those who install it.
        say "it cannot be built for glibc $GLIBC, see above"
        exit 1
    }
needing=()
for product in "${products[@]}"; do
    built=$target/x86_64-unknown-linux-gnu/dist/$product
    case $product in *.so) packaging/loadable.py "$built" ;; esac
    bring "$built" "$folder/$product"
    case $product in *.a) ;; *) needing+=("$folder/$product") ;; esac
done

has_musl() { [ -e "$(rustc --print target-libdir --target "$MUSL")" ]; }
if has_musl || { rustup target add "$MUSL" >&2 && has_musl; }; then
    programs "$MUSL/dist" cargo zigbuild --profile dist --target "$MUSL" --target-dir "$target"
else
    say "Rust's library for musl cannot be had: heaptrace needs glibc $GLIBC"
    programs x86_64-unknown-linux-gnu/dist "${for_old_glibc[@]}"
fi
for name in "${programs[@]}"; do needing+=("$folder/$name"); done
packaging/needs.py --at-most "$GLIBC" "${needing[@]}"
