#!/usr/bin/env bash
# Builds the recorder, and the unwinder behind a C interface, for aarch64 into target/aarch64, and installs what runs them
# here: a cross compiler and qemu-user. A Rust toolchain that has the target is taken; else Debian's, whose package of the
# standard library's source is compiled once, which takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/aarch64
target=aarch64-unknown-linux-gnu
mkdir -p "$out"
# Test files run at the same time.
exec 9>"$out/lock"
flock 9

needs=(
    gcc-aarch64-linux-gnu:/usr/bin/aarch64-linux-gnu-gcc g++-aarch64-linux-gnu:/usr/bin/aarch64-linux-gnu-g++
    libc6-arm64-cross:/usr/aarch64-linux-gnu/lib/libc.so.6 qemu-user:/usr/bin/qemu-aarch64
)
cargo=(cargo build)
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    needs+=(cargo-web:/usr/bin/cargo rustc-web:/usr/bin/rustc rust-web-src:/usr/lib/rustlib/src/rust/library/std/Cargo.toml)
    # Its cargo would start the first rustc of PATH. The standard library is built by options of nightly compilers.
    cargo=(env -u LD_LIBRARY_PATH -u RUSTUP_TOOLCHAIN RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
        /usr/bin/cargo build -Zbuild-std=std,panic_unwind)
fi
missing=()
for need in "${needs[@]}"; do
    [ -e "${need#*:}" ] || missing+=("${need%%:*}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]}" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "the tests of aarch64 need these Debian packages: ${missing[*]}" >&2
        echo "instead of those of Rust, \`rustup target add $target\` will do" >&2
        exit 1
    fi
fi
CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    "${cargo[@]}" --quiet --locked --release --target "$target" --target-dir "$out" \
    -p tracehound-preload -p tracehound-unwind-tests --lib
