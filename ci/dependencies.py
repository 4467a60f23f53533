#!/usr/bin/env python3
"""usage: ci/dependencies.py sbom|licences

Prints what the command and the library are made of, from Cargo.lock: as a CycloneDX document, or
as the texts of the licences that their crates are under. SOURCE_DATE_EPOCH is the time that the
document names. The same source gives the same bytes.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import tomllib
import uuid

TOP = pathlib.Path(__file__).resolve().parent.parent
SHIPPED = ("softring-cli", "softring-preload")
# Beginnings of the names of a crate's licence files.
LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
STD = """The Rust standard library is linked in, too: MIT OR Apache-2.0, see
https://www.rust-lang.org/policies/licenses. The static command has musl: MIT, see
https://musl.libc.org."""


def metadata():
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command.append("--filter-platform=x86_64-unknown-linux-gnu")
    return json.loads(subprocess.run(command, cwd=TOP, check=True, stdout=subprocess.PIPE).stdout)


def shipped(data):
    """The packages that are compiled for what is shipped, and what each of them depends on."""
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    todo = [id for id, package in packages.items() if package["name"] in SHIPPED]
    edges = {}
    while todo:
        id = todo.pop()
        if id in edges:
            continue
        normal = [
            dependency["pkg"]
            for dependency in nodes[id]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        edges[id] = normal
        todo += normal
    key = lambda id: (packages[id]["name"], packages[id]["version"])
    return [packages[id] for id in sorted(edges, key=key)], edges


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    inner = package["source"] is None
    found = {
        "type": "application" if package["name"] == "softring-cli" else "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
    }
    if package["description"]:
        found["description"] = " ".join(package["description"].split())
    if not inner:
        found["purl"] = reference(package)
        checksum = checksums[package["name"], package["version"]]
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def sbom(data):
    packages, edges = shipped(data)
    lock = tomllib.loads((TOP / "Cargo.lock").read_text())["package"]
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock}
    by_id = {package["id"]: package for package in packages}
    version = next(p["version"] for p in packages if p["name"] == SHIPPED[0])
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    own = {"type": "application", "bom-ref": "softring", "name": "softring", "version": version}
    components = [component(package, checksums) for package in packages]
    named = json.dumps([own, components, epoch], sort_keys=True)
    dependencies = [
        {
            "ref": reference(package),
            "dependsOn": sorted({reference(by_id[id]) for id in edges[package["id"]]}),
        }
        for package in packages
    ]
    top = [reference(package) for package in packages if package["name"] in SHIPPED]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, named)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": own,
        },
        "components": components,
        "dependencies": [{"ref": "softring", "dependsOn": sorted(top)}] + dependencies,
    }


def licence_texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [f for f in folder.iterdir() if f.name.upper().startswith(LICENCE_FILES)]
    return [f.read_text(errors="replace").strip() for f in sorted(files) if f.is_file()]


def licences(data):
    """One text that many crates have stands once, after the list of the crates."""
    packages = [package for package in shipped(data)[0] if package["source"]]
    texts = {}
    lines = ["softring is under MIT OR Apache-2.0. These crates are linked in:", ""]
    for package in packages:
        numbers = []
        for text in licence_texts(package):
            numbers.append(texts.setdefault(text, len(texts) + 1))
        where = f" (texts {', '.join(map(str, numbers))})" if numbers else ""
        lines.append(f"{package['name']} {package['version']}: {package['license']}{where}")
    lines += ["", STD]
    for text, number in texts.items():
        lines += ["", f"---- text {number} ----", "", text]
    return "\n".join(lines)


def main():
    match sys.argv[1:]:
        case ["sbom"]:
            print(json.dumps(sbom(metadata()), indent=1, ensure_ascii=False))
        case ["licences"]:
            print(licences(metadata()))
        case _:
            sys.exit(__doc__)


main()
