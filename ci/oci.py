#!/usr/bin/env python3
"""usage: ci/oci.py TREE ARCHIVE NAME:TAG

Writes an image of one layer, the files of TREE owned by root, as an OCI archive: what
`podman load -i ARCHIVE` and `skopeo copy oci-archive:ARCHIVE` read. Needs no daemon and no rights.
SOURCE_DATE_EPOCH is the time of all files; the same files give the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile
import time

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
KIND = "application/vnd.oci.image."


def add(archive, name, content, mode=0o644, kind=tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime, entry.type = len(content), mode, EPOCH, kind
    archive.addfile(entry, io.BytesIO(content))


def layer(tree):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            name = str(path.relative_to(tree))
            if path.is_dir():
                add(archive, name, b"", 0o755, tarfile.DIRTYPE)
            else:
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                add(archive, name, path.read_bytes(), mode)
    return written.getvalue()


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Layout:
    def __init__(self):
        self.blobs = {}

    def put(self, kind, content):
        """Keeps a blob; answers what names it."""
        if not isinstance(content, bytes):
            content = json.dumps(content, sort_keys=True).encode()
        self.blobs[digest(content)] = content
        return {"mediaType": KIND + kind, "digest": digest(content), "size": len(content)}

    def write(self, path, index):
        with tarfile.open(path, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in ("blobs", "blobs/sha256"):
                add(archive, name, b"", 0o755, tarfile.DIRTYPE)
            for name in sorted(self.blobs):
                add(archive, "blobs/" + name.replace(":", "/"), self.blobs[name])
            add(archive, "index.json", json.dumps(index, sort_keys=True).encode())
            add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    tree, path, name = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    layout = Layout()
    files = layer(tree)
    packed = gzip.compress(files, compresslevel=9, mtime=0)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {"Entrypoint": ["/usr/local/bin/softring"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(files)]},
        "history": [{"created": created, "created_by": "make dist"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": KIND + "manifest.v1+json",
        "config": layout.put("config.v1+json", config),
        "layers": [layout.put("layer.v1.tar+gzip", packed)],
        "annotations": {
            "org.opencontainers.image.title": "softring",
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            "org.opencontainers.image.created": created,
        },
    }
    entry = layout.put("manifest.v1+json", manifest)
    entry["annotations"] = {"org.opencontainers.image.ref.name": name}
    entry["platform"] = {"architecture": "amd64", "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": KIND + "index.v1+json", "manifests": [entry]}
    layout.write(path, index)


main()
