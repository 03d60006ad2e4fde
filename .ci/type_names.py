#!/usr/bin/env python3
"""Checks that the name of a type has at most two meanings in the sources of all crates.

A reader who meets a name in the third place no longer knows which one is meant. Counted are structs, enums, traits and aliases at
the top level of a module; associated types and types within functions are not.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

DEFINITION = re.compile(r"^(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait|type|union) ([A-Za-z]\w*)", re.M)
ALLOWED = 2


def defined(root):
    places = defaultdict(list)
    for path in sorted(root.glob("crates/*/src/**/*.rs")):
        for name in DEFINITION.findall(path.read_text()):
            places[name].append(path.relative_to(root))
    return places


def main():
    root = Path(__file__).resolve().parent.parent
    places = defined(root)
    too_many = {name: files for name, files in places.items() if len(files) > ALLOWED}
    for name, files in sorted(too_many.items()):
        print(f"`{name}` names {len(files)} types; allowed: {ALLOWED}")
        for file in files:
            print(f"    {file}")
    if too_many:
        sys.exit(1)
    print(f"{len(places)} names of types, none of which has more than {ALLOWED} meanings")


if __name__ == "__main__":
    main()
