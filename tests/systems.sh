#!/usr/bin/env bash
# Unpacks the C libraries of other systems than this one, for tests that compile and run programs with them: systems.sh
# FOLDER makes FOLDER/bullseye (glibc 2.31) and FOLDER/trixie (glibc 2.41) of Debian's packages, whose signatures apt
# checks. Nothing is installed.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
packages=(libc6 libc6-dev linux-libc-dev libgcc-s1 busybox)
for suite in bullseye trixie; do
    root=$folder/$suite
    if [ -e "$root/complete" ]; then continue; fi
    command -v apt-get >/dev/null || {
        echo "systems.sh: the C library of Debian $suite is fetched by apt-get, which is not here" >&2
        exit 1
    }
    work=$(mktemp -d "$folder/$suite.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/etc" "$work/unpacked"
    : >"$work/status"
    apt() {
        apt-get -qq -o Dir::Etc="$work/etc" -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::Cache="$work" \
            -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none -o APT::Sandbox::User= \
            -o Acquire::AllowInsecureRepositories=false "$@"
    }
    # The mirror that this machine is set up with.
    # shellcheck disable=SC2016  # apt's own variable
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' | grep -m1 '/debian/*$')
    signed=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$signed] $mirror $suite main" >"$work/etc/sources.list"
    apt update 2>"$work/error" && (cd "$work" && apt download "${packages[@]}") 2>"$work/error" || true
    ls "$work"/libc6_*.deb >/dev/null 2>&1 || {
        echo "systems.sh: the C library of Debian $suite cannot be fetched: $(cat "$work/error")" >&2
        exit 1
    }
    for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/unpacked"; done
    (
        cd "$work/unpacked"
        # Later systems have one folder for both.
        [ -e lib ] || ln -s usr/lib lib
        [ -e lib64 ] || ln -s usr/lib64 lib64
        # Links that lead out of here.
        find . -type l -lname '/*' | while IFS= read -r link; do
            ln -sf --relative ".$(readlink "$link")" "$link"
        done
        # Has a compiler make programs for this system.
        here=$folder/$suite
        cat >flags <<END
--sysroot=$here -B$here/usr/lib/x86_64-linux-gnu -L$here/usr/lib/x86_64-linux-gnu -Wl,--disable-new-dtags
-Wl,-rpath,$here/lib/x86_64-linux-gnu -Wl,--dynamic-linker=$here/lib64/ld-linux-x86-64.so.2
END
        touch complete
    )
    rm -rf "$root"
    mv "$work/unpacked" "$root"
    rm -rf "$work"
done
