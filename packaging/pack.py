#!/usr/bin/env python3
"""Packs a build: tarball with an installer, Debian and RPM package, Python wheel, heaptrace alone where it is a static program,
what they are made of (CycloneDX), and their SHA-256 sums.

    packaging/pack.py --from target/dist --out target/packages

All packages hold the same bytes: the binary and the library without debug information, what is linked into programs, the
header, manual pages, completions, licences. Nothing is compiled here. Times inside are those of SOURCE_DATE_EPOCH (default: the last commit's),
so that the same build packs to the same bytes. Needs strip and objdump (binutils), cargo, and rpmbuild (Debian: rpm).
"""

import argparse
import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

# No folder of compiled Python among the sources.
sys.dont_write_bytecode = True
import needs
import sbom

ROOT = Path(__file__).resolve().parent.parent
NAME = "tracehound"
SUMMARY = "Records every allocation and free of a Linux program, and shows what was in memory, who put it there, who freed it"
# What is built; what plays and what collects is looked for beside heaptrace.
PROGRAMS = ["bin/heaptrace", "bin/heaptrace-replay", "bin/heaptrace-fleet", "lib/libtracehound.so"]
# What is linked into programs, as it is built.
LINKED = ["lib/libtracehound.a", "lib/tracehound-wrap.opts"]
SHELLS = {"bash": "share/bash-completion/completions/heaptrace", "zsh": "share/zsh/site-functions/_heaptrace",
          "fish": "share/fish/vendor_completions.d/heaptrace.fish"}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def version():
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)


def epoch():
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or output("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))


def stage(build, tree):
    """Lays out what all packages hold below `tree`: path → mode."""
    binary = tree / "bin/heaptrace"
    for target in PROGRAMS:
        source, target = build / Path(target).name, tree / target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)
        subprocess.run(["strip", "--strip-debug", str(target)], check=True)
    for target in LINKED:
        shutil.copyfile(build / Path(target).name, tree / target)
    for source, target in [("preload/include/tracehound.h", "include/tracehound.h"),
                           ("README.md", f"share/doc/{NAME}/README.md"), ("CHANGELOG.md", f"share/doc/{NAME}/CHANGELOG.md"),
                           ("LICENSE-MIT", f"share/doc/{NAME}/LICENSE-MIT"),
                           ("LICENSE-APACHE", f"share/doc/{NAME}/LICENSE-APACHE")]:
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, tree / target)
    manual = tree / "share/man/man1"
    manual.mkdir(parents=True)
    subprocess.run([str(binary), "man", str(manual)], check=True, stdout=subprocess.DEVNULL)
    for shell, path in SHELLS.items():
        (tree / path).parent.mkdir(parents=True)
        (tree / path).write_bytes(output(str(binary), "completions", shell))


def files(tree):
    return sorted(path.relative_to(tree) for path in tree.rglob("*") if path.is_file())


def mode(path):
    if str(path) in LINKED:
        return 0o644
    return 0o755 if path.parts[0] in ("bin", "lib") or path.suffix == ".sh" else 0o644


def tar(entries, when, level):
    """A gzipped tar of (name, mode, bytes)."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, rights, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), rights, when
            entry.uname = entry.gname = "root"
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), level, mtime=when)


def tarball(tree, out, when, level):
    top = f"{NAME}-{version()}-x86_64-linux-gnu"
    entries = [(f"{top}/{path}", mode(path), (tree / path).read_bytes()) for path in files(tree)]
    entries.append((f"{top}/install.sh", 0o755, (ROOT / "packaging/install.sh").read_bytes()))
    target = out / f"{top}.tar.gz"
    target.write_bytes(tar(entries, when, level))
    return target


def wheel(tree, out, when, level, glibc):
    systems = [f"manylinux_{glibc[0]}_{glibc[1]}_x86_64"]
    # A static program and the library are for musl, too; 1.2 is what the library is tested with.
    if needs.is_static(tree / "bin/heaptrace"):
        systems.append("musllinux_1_2_x86_64")
    base, info = f"{NAME}-{version()}", f"{NAME}-{version()}.dist-info"
    content = {}
    for path in files(tree):
        below = Path(*path.parts[1:])
        place = f"scripts/{below}" if path.parts[0] == "bin" else f"data/{path}"
        content[f"{base}.data/{place}"] = (mode(path), (tree / path).read_bytes())
    content[f"{info}/METADATA"] = (0o644, f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\n"
                                          f"Summary: {SUMMARY}\nLicense: MIT OR Apache-2.0\n".encode())
    content[f"{info}/WHEEL"] = (0o644, (f"Wheel-Version: 1.0\nGenerator: {NAME} packaging\nRoot-Is-Purelib: false\n"
                                       + "".join(f"Tag: py3-none-{system}\n" for system in systems)).encode())
    rows = []
    for name, (_, data) in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    rows.append(f"{info}/RECORD,,\n")
    content[f"{info}/RECORD"] = (0o644, "".join(rows).encode())
    target = out / f"{base}-py3-none-{'.'.join(systems)}.whl"
    # A zip knows no time before 1980.
    stamp = __import__("time").gmtime(max(when, 315_532_800))[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (rights, data) in content.items():
            entry = zipfile.ZipInfo(name, stamp)
            entry.external_attr = (0o100000 | rights) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=level)
    return target


def deb(tree, out, when, level, glibc, libgcc):
    entries = [(f"./usr/{path}", mode(path), (tree / path).read_bytes()) for path in files(tree)]
    # No program is linked against the library, so its rights are those of any other.
    entries = [(name, 0o644 if name.endswith(".so") else rights, data) for name, rights, data in entries]
    installed = sum(len(data) for _, _, data in entries) // 1024
    depends = f"libc6 (>= {glibc[0]}.{glibc[1]})" + (", libgcc-s1" if libgcc else "")
    control = (f"Package: {NAME}\nVersion: {version()}\nArchitecture: amd64\nMaintainer: Tracehound <tracehound@localhost>\n"
               f"Installed-Size: {installed}\nDepends: {depends}\nSection: devel\nPriority: optional\n"
               f"Description: heap tracer that records every event\n {SUMMARY}.\n")
    sums = "".join(f"{hashlib.md5(data).hexdigest()}  {name[2:]}\n" for name, _, data in entries)
    parts = [("debian-binary", b"2.0\n"),
             ("control.tar.gz", tar([("./control", 0o644, control.encode()), ("./md5sums", 0o644, sums.encode())], when, level)),
             ("data.tar.gz", tar(entries, when, level))]
    target = out / f"{NAME}_{version()}_amd64.deb"
    with target.open("wb") as archive:
        archive.write(b"!<arch>\n")
        for name, data in parts:
            archive.write(f"{name:<16}{when:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
            archive.write(data + b"\n" * (len(data) % 2))
    return target


def rpm(tree, out, when, level, glibc, libgcc):
    """By rpmbuild, which only packs: what is in the package lies there already."""
    listed = "\n".join(f'%attr({0o644 if path.suffix == ".so" else mode(path):o},root,root) "/usr/{path}"'
                       for path in files(tree))
    requires = f"libc.so.6(GLIBC_{glibc[0]}.{glibc[1]})(64bit)" + (", libgcc_s.so.1()(64bit)" if libgcc else "")
    spec = (f"Name: {NAME}\nVersion: {version()}\nRelease: 1\nSummary: Heap tracer that records every event\n"
            f"License: MIT OR Apache-2.0\nAutoReqProv: no\n"
            f"Requires: {requires}\n"
            f"%description\n{SUMMARY}.\n%install\nmkdir -p %{{buildroot}}\ncp -a {tree} %{{buildroot}}/usr\n"
            f"%files\n{listed}\n")
    settings = {"_topdir": str(tree.parent / "rpm"), "_rpmdir": str(tree.parent / "rpms"), "_buildhost": "localhost",
                "_build_id_links": "none", "use_source_date_epoch_as_buildtime": "1", "debug_package": "%{nil}",
                "clamp_mtime_to_source_date_epoch": "1", "__os_install_post": "%{nil}", "_binary_payload": f"w{level}.gzdio",
                "_dbpath": str(tree.parent / "rpmdb")}
    file = tree.parent / "tracehound.spec"
    file.write_text(spec)
    command = ["rpmbuild", "-bb", "--quiet", "--target", "x86_64-linux"]
    for name, value in settings.items():
        command += ["--define", f"{name} {value}"]
    for path in tree.rglob("*"):
        os.utime(path, (when, when))
    subprocess.run([*command, str(file)], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "SOURCE_DATE_EPOCH": str(when)})
    made = next((tree.parent / "rpms").rglob("*.rpm"))
    target = out / f"{NAME}-{version()}-1.x86_64.rpm"
    shutil.copyfile(made, target)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="build", type=Path, default=ROOT / "target/dist", help="where the build lies")
    parser.add_argument("--out", type=Path, default=ROOT / "target/packages", help="where the packages go")
    parser.add_argument("--level", type=int, choices=range(1, 10), default=9, help="of compression")
    arguments = parser.parse_args()
    when = epoch()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        stage(arguments.build, tree)
        programs = [tree / program for program in PROGRAMS]
        glibc, libgcc = needs.newest_glibc(*programs), "libgcc_s.so.1" in needs.libraries(*programs)
        how = (tree, arguments.out, when, arguments.level)
        made = [tarball(*how), wheel(*how, glibc), deb(*how, glibc, libgcc), rpm(*how, glibc, libgcc)]
        if needs.is_static(programs[0]):
            made.append(arguments.out / f"heaptrace-{version()}-x86_64-linux")
            shutil.copyfile(programs[0], made[-1])
            made[-1].chmod(0o755)
    made.append(arguments.out / f"{NAME}-{version()}.cdx.json")
    made[-1].write_bytes(sbom.document(ROOT, version(), when))
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (arguments.out / "SHA256SUMS").write_text(sums)
    print(f"glibc {glibc[0]}.{glibc[1]} or newer is needed")
    for path in [*made, arguments.out / "SHA256SUMS"]:
        print(path)


if __name__ == "__main__":
    sys.exit(main())
