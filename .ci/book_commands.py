#!/usr/bin/env python3
"""Runs the commands of a page of the book, and compares what they print with the page.

    python3 .ci/book_commands.py docs/src/hardware.md

The blocks `sh` run one after another in one shell, in a new folder, with the programs of target/release. A block `text` that follows
is what its block prints. `cargo install` is left out.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
END = "-- end of a block --"


def main():
    page = pathlib.Path(sys.argv[1]).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", page, re.M | re.S)
    commands = (re.sub(r"^cargo install .*\n", "", block, flags=re.M) for block, _ in blocks)
    script = "set -eo pipefail\n" + "".join(f"{block}\necho '{END}'\n" for block in commands)
    path = f"{ROOT / 'target/release'}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("crates", "examples"):
            os.symlink(ROOT / name, f"{folder}/{name}")
        run = subprocess.run(["bash", "-c", script], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{run.stdout}\n{run.stderr}\n{sys.argv[1]}: a command ended with {run.returncode}")
    printed = run.stdout.split(END + "\n")
    wrong = 0
    for (block, expected), got in zip(blocks, printed):
        lines = [[line.rstrip() for line in text.splitlines()] for text in (expected, got)]
        if expected and lines[0] != lines[1]:
            wrong += 1
            print(f"{block}expected:\n{expected}got:\n{got}")
    print(f"{len(blocks)} blocks of commands, of which {wrong} print something else than the page says")
    sys.exit(wrong > 0)


main()
