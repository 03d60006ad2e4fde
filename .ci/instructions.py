#!/usr/bin/env python3
"""Counts the instructions of fixed kernels, and compares the counts with recorded ones.

    cargo build --release --locked --bench instructions
    python3 .ci/instructions.py BINARY            # the counts, and what is wrong
    python3 .ci/instructions.py BINARY --record   # writes .ci/instructions.json anew

A count does not depend on how busy a machine is, so the check belongs to every run. valgrind knows AVX2 and not AVX-512: the
kernels run on AVX2, with one thread. The counts belong to one version of rustc. Another version only prints.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

RECORD = pathlib.Path(__file__).with_suffix(".json")
# By how much a count may grow, and by how much it may shrink until the record is to be written anew.
SLACK = 0.03


def rustc():
    """The version of the compiler, without its date."""
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def counted(binary, kernel):
    """The instructions of a kernel, without the C library's: which of its variants run depends on the processor."""
    environment = os.environ | {"MICROSCALING_LEVEL": "avx2", "MICROSCALING_PRODUCT": "avx2", "RAYON_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        profile = f"{folder}/callgrind.out"
        options = [f"--callgrind-out-file={profile}", "--collect-atstart=no", "--toggle-collect=*instructions*measured*"]
        command = ["valgrind", "--tool=callgrind", *options, binary, kernel]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{kernel}: not counted\n{run.stderr}")
        rows = subprocess.run(["callgrind_annotate", "--threshold=100", profile], capture_output=True, text=True, check=True).stdout
    name = pathlib.Path(binary).name
    own = re.findall(rf"^ *([0-9,]+) .*/{re.escape(name)}\]$", rows, re.M)
    count = sum(int(number.replace(",", "")) for number in own)
    return count or sys.exit(f"{kernel}: not counted\n{rows}")


def main():
    binary = sys.argv[1]
    lines = subprocess.run([binary], capture_output=True, text=True, check=True).stdout.splitlines()
    kernels = {name: int(elements) for elements, name in (line.split("\t") for line in lines)}
    counts = {kernel: counted(binary, kernel) for kernel in kernels}
    if "--record" in sys.argv:
        RECORD.write_text(json.dumps({"rustc": rustc(), "instructions": counts}, indent=2) + "\n")
    recorded = json.loads(RECORD.read_text())
    compared = recorded["rustc"] == rustc()
    wrong = []
    for kernel, count in counts.items():
        before = recorded["instructions"].get(kernel)
        ratio = count / before if before else float("nan")
        print(f"{kernel:34} {count:9} instructions, {count / kernels[kernel]:6.2f} an element, {ratio:5.3f} of the record")
        if not abs(ratio - 1) <= SLACK:
            wrong.append(kernel)
    wrong += sorted(set(recorded["instructions"]) - set(counts))
    if not compared:
        print(f"not compared: the record is of rustc {recorded['rustc']}, this is {rustc()}")
    elif wrong:
        sys.exit(f"more than {SLACK:.0%} from the record: {', '.join(wrong)}. Find the cause; a gain is recorded by --record")


main()
