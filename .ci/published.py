"""The crates that are published, and the features of their docs: for release.py and public_api.py."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def crates():
    """The crates that are published, as cargo describes them."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    return [package for package in packages if package["publish"] is None]


def features_of_docs(published):
    """For each name, the features with which docs.rs builds the docs."""
    wanted = {}
    for package in published:
        settings = ((package["metadata"] or {}).get("docs") or {}).get("rs")
        if not settings or "features" not in settings or settings.get("targets") != ["x86_64-unknown-linux-gnu"]:
            sys.exit(f"{package['name']}: [package.metadata.docs.rs] needs `features` and `targets`")
        wanted[package["name"]] = settings["features"]
    return wanted


def doc_command(wanted):
    """cargo's arguments for the docs of all crates in one build."""
    features = [f"{name}/{feature}" for name, features in wanted.items() for feature in features]
    return ["doc", "--release", "--no-deps", "--locked", "--quiet", "--lib", "--workspace", "--features", ",".join(features)]
