"""What the packages are made of, as a CycloneDX document: crates that are linked in, and the page's libraries."""

import hashlib
import json
import re
import subprocess
import uuid

# The crates whose programs and library are packed.
SHIPPED = ["tracehound-preload", "tracehound-linked", "heaptrace", "heaptrace-replay", "heaptrace-fleet"]
TARGETS = ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"]


def checksums(root):
    """SHA-256 of each crate from a registry, as Cargo.lock has it."""
    text = (root / "Cargo.lock").read_text()
    packages = [dict(re.findall(r'^(name|version|checksum) = "(.*)"$', part, re.M)) for part in text.split("[[package]]")]
    return {(p["name"], p["version"]): p["checksum"] for p in packages if "checksum" in p}


def linked_crates(root):
    """All packages that a shipped one needs to run: no tools of the build, nothing of tests."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    command += [word for target in TARGETS for word in ("--filter-platform", target)]
    document = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in document["packages"]}
    nodes = {node["id"]: node for node in document["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] in SHIPPED]
    needs = {}
    while waiting:
        id = waiting.pop()
        if id in needs:
            continue
        # Code that runs in the compiler is in no package.
        is_linked = lambda needed: not any("proc-macro" in target["kind"] for target in packages[needed]["targets"])
        normal = [dep["pkg"] for dep in nodes[id]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        needs[id] = [needed for needed in normal if is_linked(needed)]
        waiting.extend(needs[id])
    return packages, needs


def page_libraries(root):
    """What npm brings into the page: name, version, licence, integrity."""
    lock = json.loads((root / "web/package-lock.json").read_text())["packages"]
    for path, entry in sorted(lock.items()):
        if path and not entry.get("dev") and not entry.get("optional") and "node_modules/" in path:
            yield path.rpartition("node_modules/")[2], entry


def document(root, version, when):
    """The document, as bytes; the same for the same sources."""
    sums, (packages, needs) = checksums(root), linked_crates(root)
    reference = lambda id: f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}"
    components, dependencies = [], []
    for id in sorted(needs, key=reference):
        package = packages[id]
        component = {"type": "library", "bom-ref": reference(id), "name": package["name"], "version": package["version"],
                     "purl": reference(id)}
        if package["license"]:
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        checksum = sums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
        dependencies.append({"ref": reference(id), "dependsOn": sorted({reference(needed) for needed in needs[id]})})
    for name, entry in page_libraries(root):
        purl = f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}"
        component = {"type": "library", "bom-ref": purl, "name": name, "version": entry["version"], "purl": purl}
        if "license" in entry:
            component["licenses"] = [{"expression": entry["license"]}]
        components.append(component)
        dependencies.append({"ref": purl, "dependsOn": []})
    own = {"type": "application", "bom-ref": "tracehound", "name": "tracehound", "version": version,
           "licenses": [{"expression": "MIT OR Apache-2.0"}]}
    tops = {reference(id) for id in needs if packages[id]["name"] in SHIPPED}
    tops |= {c["bom-ref"] for c in components if c["purl"].startswith("pkg:npm/")}
    dependencies.insert(0, {"ref": "tracehound", "dependsOn": sorted(tops)})
    serial = uuid.UUID(bytes=hashlib.sha256(json.dumps(components).encode()).digest()[:16], version=4)
    stamp = subprocess.run(["date", "-u", "-d", f"@{when}", "+%Y-%m-%dT%H:%M:%SZ"], check=True, stdout=subprocess.PIPE)
    bom = {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
           "serialNumber": f"urn:uuid:{serial}", "version": 1,
           "metadata": {"timestamp": stamp.stdout.decode().strip(), "component": own},
           "components": components, "dependencies": dependencies}
    return (json.dumps(bom, indent=1) + "\n").encode()
