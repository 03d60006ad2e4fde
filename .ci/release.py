#!/usr/bin/env python3
"""What a release needs, checked as far as it can be without one.

    python3 .ci/release.py check FEATURES    # changelogs, `cargo publish --dry-run`, and what would be published compiles
    python3 .ci/release.py test FEATURES     # the tests of all crates that would be published, from the packages
    python3 .ci/release.py docs              # the docs of all crates in one build, with the features that docs.rs is asked for
    python3 .ci/release.py docs --each       # the same crate by crate, exactly as docs.rs does

`check` and `test` unpack the packages in the place of the sources of a copy of the workspace, and compile that
with FEATURES. cargo's own verification would compile all dependencies once more, without the profile of this workspace.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

from published import ROOT, crates, doc_command, features_of_docs

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Set where cargo calls this script in the place of rustdoc.
AS_RUSTDOC = "RELEASE_AS_RUSTDOC"


def cargo(*args, cwd=ROOT, **env):
    subprocess.run(["cargo", *args], cwd=cwd, env={**os.environ, **env}, check=True)


def check_changelogs(version):
    for file in [ROOT / "CHANGELOG.md", *ROOT.glob("crates/*/CHANGELOG.md")]:
        text = file.read_text()
        name = file.relative_to(ROOT)
        if f"\n## [{version}]" not in text:
            sys.exit(f"{name}: there is no section `## [{version}]`")
        if "\n## [Unreleased]" in text:
            sys.exit(f"{name}: `## [Unreleased]` belongs to the section of {version}")


def check(features):
    published = crates()
    check_changelogs(published[0]["version"])
    cargo("publish", "--dry-run", "--workspace", "--no-verify", "--locked", "--allow-dirty", "--quiet")
    in_packages(published, "check", "--release", "--workspace", "--offline", "--features", features, "--quiet")
    print(f"{len(published)} crates are packed, and compile as packed")


def test(features):
    published = crates()
    names = [word for package in published for word in ("--package", package["name"])]
    in_packages(published, "test", "--release", *names, "--offline", "--features", features)


def in_packages(published, *command):
    """Runs cargo in a copy of the workspace with the sources of the packages."""
    names = [word for package in published for word in ("--package", package["name"])]
    cargo("package", *names, "--no-verify", "--locked", "--offline", "--allow-dirty", "--quiet")

    copy = TARGET / "packed"
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "crates").mkdir(parents=True)
    for entry in ROOT.iterdir():
        if entry.name not in ("Cargo.toml", "Cargo.lock", "crates", "target", ".git"):
            (copy / entry.name).symlink_to(entry)
    packed = {package["name"] for package in published}
    for entry in (ROOT / "crates").iterdir():
        if entry.name not in packed:
            (copy / "crates" / entry.name).symlink_to(entry)
    patch = "\n[patch.crates-io]\n"
    for package in published:
        name = f"{package['name']}-{package['version']}"
        with tarfile.open(TARGET / "package" / f"{name}.crate") as archive:
            archive.extractall(copy / "crates", filter="data")
        unpacked = (copy / "crates" / name).rename(copy / "crates" / package["name"])
        # The files of every package have one date, by which cargo would take a changed package for an old one.
        for file in unpacked.rglob("*"):
            file.touch()
        patch += f"{package['name']} = {{ path = \"crates/{package['name']}\" }}\n"
    (copy / "Cargo.toml").write_text((ROOT / "Cargo.toml").read_text() + patch)
    shutil.copy(ROOT / "Cargo.lock", copy)
    cargo(*command, cwd=copy, CARGO_TARGET_DIR=str(TARGET))


def docs(each):
    wanted = features_of_docs(crates())
    script = str(pathlib.Path(__file__).resolve())
    env = {"RUSTDOC": script, "RUSTDOCFLAGS": "-D warnings --cfg docsrs", AS_RUSTDOC: "1"}
    if each:
        for name, features in wanted.items():
            command = ["doc", "--release", "--no-deps", "--locked", "--quiet", "--lib"]
            cargo(*command, "-p", name, "--features", ",".join(features), **env)
    else:
        cargo(*doc_command(wanted), **env)
    print(f"docs of {len(wanted)} crates")


if AS_RUSTDOC in os.environ:
    # docs.rs has a nightly rustdoc, with `doc_cfg`. For rustdoc alone: build scripts ask for this variable, and cargo would
    # compile most dependencies anew.
    os.execvpe("rustdoc", ["rustdoc", *sys.argv[1:]], {**os.environ, "RUSTC_BOOTSTRAP": "1"})
match sys.argv[1:]:
    case ["check", features]:
        check(features)
    case ["test", features]:
        test(features)
    case ["docs", *rest] if rest in ([], ["--each"]):
        docs(bool(rest))
    case _:
        sys.exit(__doc__)
