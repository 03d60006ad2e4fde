#!/usr/bin/env python3
"""Checks the relative links and anchors of the README, the book and the crates' READMEs.

    python3 .ci/links.py          # fails with a line for each link that leads nowhere
    python3 .ci/links.py --test   # the checker's own test

A link's file has to exist and its anchor has to be a heading. A chapter links to no Markdown file outside of the book, because
mdBook would make it a link to a page that does not exist. A link out of the book goes by the repository's root, from which the
built pages in target/book are as far away as the chapters. Every chapter stands in SUMMARY.md. A README that crates.io shows
alone has no link out of its crate. Nothing is fetched: links to other sites are not followed.
"""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!\\)\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)|^\[[^]]+\]:\s+(\S+)", re.M)
INCLUDE = re.compile(r"\{\{#include ([^}:]+)(?::(\w+))?\}\}")


def without_code(text):
    """The text with code blanked out, line for line."""
    text = re.sub(r"^([ ]*)(```+|~~~+).*?^\1\2[ ]*$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)", "", text)


def anchors(text):
    """The anchors of a page's headings, as mdBook and GitHub name them."""
    found = {}
    text = re.sub(r"^([ ]*)(```+|~~~+).*?^\1\2[ ]*$", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {f"{name}-{i}" if i else name for name, count in found.items() for i in range(count + 1)}


def check(root):
    """A line for each link of the repository at `root` that leads nowhere."""
    book = root / "docs" / "src"
    chapters, crates = sorted(book.rglob("*.md")), sorted(root.glob("crates/*/README.md"))
    readmes = [path for path in (root / "README.md", root / "CONTRIBUTING.md", root / "data" / "README.md") if path.exists()]
    wrong = []
    for page in readmes + chapters + crates:
        text = page.read_text(encoding="utf-8")
        for link, reference in LINK.findall(without_code(text)):
            target, _, anchor = (link or reference).partition("#")
            if re.match(r"[a-z][a-z+.-]*:", target) or not (target or anchor):
                continue
            file = (page.parent / target).resolve() if target else page
            reason = None
            if not target and not anchor:
                reason = "an empty link"
            elif not file.exists():
                # A link of rustdoc, such as `[text](Self::item)`, stands in a crate's README that is its documentation.
                reason = None if page in crates and re.fullmatch(r"[\w:!()]+", target) else "no such file"
            elif page in chapters and file.suffix == ".md" and book not in file.parents:
                reason = "a Markdown file outside of the book: link to its folder"
            elif page in chapters and book not in file.parents and not target.startswith("../" * len(page.relative_to(root / "docs").parents)):
                reason = "the built page lies elsewhere: go by the root"
            elif page in crates and page.parent not in file.parents:
                reason = "a file that the package does not hold"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                reason = "no such heading"
            if reason:
                wrong.append(f"{page.relative_to(root)}: {link or reference}: {reason}")
        for target, anchor in INCLUDE.findall(text) if page in chapters else []:
            file = page.parent / target
            if not file.exists():
                wrong.append(f"{page.relative_to(root)}: {target}: no such file to include")
            elif anchor and f"ANCHOR: {anchor}\n" not in file.read_text(encoding="utf-8"):
                wrong.append(f"{page.relative_to(root)}: {target}: no such part to include: {anchor}")
    summary = (book / "SUMMARY.md").read_text(encoding="utf-8")
    for chapter in chapters:
        name = chapter.relative_to(book).as_posix()
        if name != "SUMMARY.md" and f"]({name})" not in summary:
            wrong.append(f"docs/src/SUMMARY.md: {name} is missing")
    return wrong


def test():
    files = {
        "README.md": "[a](docs/src/one.md#two-words) [b](nowhere.md) [c](docs/src/one.md#three) `[d](code.md)`\n```\n[e](code.md)\n```\n"
        "[f](https://example.org/x) ![p](picture.svg) [g][h]\n\n[h]: gone.md\n",
        "picture.svg": "",
        "docs/src/SUMMARY.md": "[One](one.md)\n",
        "docs/src/one.md": "## Two `words`\n## Two words\n[self](#two-words-1) [out](../../README.md) [up](../../crates/x) [api](../api)\n"
        "{{#include ../../part.rs:part}} {{#include ../../part.rs:other}}",
        "docs/api/x.txt": "",
        "docs/src/notes/forgotten.md": "[one](../one.md#two-words) [part](../../../part.rs) [gone](../../part.rs)\n",
        "part.rs": "// ANCHOR: part\n// ANCHOR_END: part\n",
        "crates/x/README.md": "[Type](Self::item) [own](src/lib.rs) [other](../../README.md)\n",
        "crates/x/src/lib.rs": "",
    }
    expected = [
        "README.md: nowhere.md: no such file",
        "README.md: docs/src/one.md#three: no such heading",
        "README.md: gone.md: no such file",
        "docs/src/notes/forgotten.md: ../../part.rs: no such file",
        "docs/src/one.md: ../../README.md: a Markdown file outside of the book: link to its folder",
        "docs/src/one.md: ../api: the built page lies elsewhere: go by the root",
        "docs/src/one.md: ../../part.rs: no such part to include: other",
        "crates/x/README.md: ../../README.md: a file that the package does not hold",
        "docs/src/SUMMARY.md: notes/forgotten.md is missing",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = check(root)
    assert found == expected, "\n".join(["found:", *found, "expected:", *expected])
    print("links.py: its test passed")


def main():
    if sys.argv[1:] == ["--test"]:
        return test()
    wrong = check(ROOT)
    if wrong:
        sys.exit("\n".join(wrong))
    print("every relative link leads somewhere")


main()
