#!/usr/bin/env python3
"""Checks the sentences of the README, the book and the Rust documentation by the rules of .ci/prose.toml.

    python3 .ci/prose.py            # fails with a line for each sentence that breaks a rule
    python3 .ci/prose.py --count    # the number of broken rules for each crate and for the pages
    python3 .ci/prose.py --test     # the checker's own test
    python3 .ci/prose.py FILE…      # checks these files

Pages: Markdown outside of code, tables and headings. Rust: the comments `//!`, `///` and `//` of all sources, tests included, and
so the `--help` of the programs; and the messages of errors. The crates' change logs are left out.
"""

import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "data/README.md", "tests/data/README.md", "docs/src/*.md", "docs/src/notes/*.md", "crates/*/README.md"]
SOURCES = ["*.rs"]
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
# A sentence ends with its mark. A colon ends a sentence if a capital, code, a link or emphasis follows.
END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\**\s+|(?<=:)\s+(?=[A-Z\u0001*\[(])")
PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\s+(?:not\s+|never\s+|also\s+|only\s+|then\s+)?"
    r"(?:\w{2,}ed|read|written|made|given|taken|kept|held|known|shown|chosen|drawn|found|left|lost|put|run|sent|set|split|told)\b"
)


def paragraphs(path, text):
    """(line number, text) of each paragraph that a reader reads."""
    rust, fence, part, began, kind = path.endswith(".rs"), None, [], 0, None
    for number, line in [*enumerate(text.splitlines(), 1), (0, "")]:
        if rust:
            comment = re.match(r"\s*//([/!]?)(?!/) ?(.*)", line)
            # A comment of another kind begins another paragraph.
            line, before, kind = comment[2] if comment else "", kind, comment and comment[1]
            if kind != before and part:
                yield began, " ".join(part)
                part = []
        mark = re.match(r"\s*(```+|~~~+)", line)
        inside = fence is not None
        if mark and (fence is None or line.strip().startswith(fence)):
            fence = None if inside else mark[1]
        skip = inside or mark or not line.strip() or re.match(r"    (?! *[*\-\d])|\s*[|#<]|\{\{|\[[^]]+\]: \S+$", line)
        item = re.match(r"\s*([*\-]|\d+\.) +", line)
        if (skip or item) and part:
            yield began, " ".join(part)
            part = []
        if not skip:
            began = began if part else number
            part.append(line[item.end() :].strip() if item else line.strip())


def errors(path, text):
    """(line number, text) of each error message, `#[error("…")]` of the crate thiserror, with its values blanked out."""
    for found in re.finditer(r'#\[error\(\s*"((?:[^"\\]|\\.|\\\n)*)"', text if path.endswith(".rs") else "", re.S):
        message = re.sub(r"\\\n\s*", "", found[1])
        yield text.count("\n", 0, found.start()) + 1, re.sub(r"`?\{[^}]*\}`?", "`…`", message)


def sentences(text):
    """Each sentence, with code blanked out and links reduced to their text."""
    text = CODE.sub("\u0001", text)
    text = re.sub(r"!?\[([^]]*)\](\([^)]*\)|\[[^]]*\])?", r"\1", text)
    return [sentence for sentence in END.split(text) if sentence]


def broken(sentence, rules):
    """What the sentence breaks: (found, instead)."""
    limits = rules["limits"]
    plain = re.sub(r"\([^()]*\)", "", sentence)
    words = len(re.findall(r"[A-Za-z][A-Za-z'’\-]*", plain))
    if words > limits["words"]:
        yield f"{words} words", f"at most {limits['words']}"
    for name, mark in [("semicolons", re.compile(";")), ("passives", PASSIVE)]:
        count = len(mark.findall(sentence))
        if count > limits[name]:
            yield f"{count} {name}", f"at most {limits[name]}"
    for rule in rules["starts"]:
        if found := re.match(r"\W*(?:" + rule["pattern"] + ")", sentence):
            yield f"starts with “{found[0].strip()}”", rule["instead"]
    for rule in rules["turns"]:
        if found := re.search(rule["pattern"], sentence, re.I):
            yield f"“{found[0]}”", rule["instead"]


def check(files, rules):
    """(file, line, what it breaks, what instead, the sentence) for each broken rule, and the exceptions that no sentence needs."""
    exceptions, used, wrong = rules.get("exception", []), set(), []
    for path, text in files.items():
        for line, paragraph in [*paragraphs(path, text), *errors(path, text)]:
            for sentence in sentences(paragraph):
                faults = list(broken(sentence, rules))
                named = [i for i, e in enumerate(exceptions) if e["file"] == path and e["text"] in sentence] if faults else []
                used.update(named)
                wrong += [] if named else [(path, line, *fault, sentence.replace("\u0001", "`…`")) for fault in faults]
    return wrong, [e for i, e in enumerate(exceptions) if i not in used]


def test():
    rules = tomllib.loads((ROOT / ".ci/prose.toml").read_text(encoding="utf-8")) | {
        "exception": [{"file": "a.md", "text": "kept on purpose", "why": ""}, {"file": "a.md", "text": "nowhere", "why": ""}]
    }
    page = """# What is a heading?
A sentence. It is without a noun. A backend is another
one than before; and then; so.

* None was to be had. The shape of that of weights, kept on purpose.
* `what is` code. Plain words that
  go on (what is in parentheses counts).

```text
What is code?
```
    What is code?
| what is | a table |
""" + " ".join(["word"] * 31) + ".\n\nX is made, is read, is written and is sent.\n"
    source = """//! Those of a crate. Fine.
//!
//! ```
//! // That of code
//! ```
// That of a plain
// comment, and of it.
    /// What it takes.
    fn f() {}
    #[error(
        "`{x}` is \\
         no number"
    )]
/// Such specs are good. `x` is no `f32`.
"""
    wrong, unused = check({"a.md": page, "b.rs": source}, rules)
    found = [(path, line, fault) for path, line, fault, _, _ in wrong]
    expected = [
        ("a.md", 2, "starts with “It”"),
        ("a.md", 2, "2 semicolons"),
        ("a.md", 2, "“is another one”"),
        ("a.md", 5, "“to be had”"),
        ("a.md", 6, "“what is”"),
        ("a.md", 14, "31 words"),
        ("a.md", 16, "4 passives"),
        ("b.rs", 1, "starts with “Those”"),
        ("b.rs", 1, "“Those of”"),
        ("b.rs", 6, "starts with “That”"),
        ("b.rs", 6, "“That of”"),
        ("b.rs", 6, "“of it”"),
        ("b.rs", 8, "starts with “What”"),
        ("b.rs", 8, "“What it”"),
        ("b.rs", 14, "“is no”"),
        ("b.rs", 10, "“is no”"),
    ]
    assert found == expected, "\n".join(["found:", *map(str, found), "expected:", *map(str, expected)])
    assert [e["text"] for e in unused] == ["nowhere"], unused
    print("prose.py: its test passed")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--test"]:
        return test()
    rules = tomllib.loads((ROOT / ".ci/prose.toml").read_text(encoding="utf-8"))
    count = arguments == ["--count"]
    named = [] if count else arguments
    names = named or subprocess.run(
        ["git", "ls-files", *PAGES, *SOURCES], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    wrong, unused = check({name: (ROOT / name).read_text(encoding="utf-8") for name in dict.fromkeys(names)}, rules)
    if count:
        counts = {}
        for path, *_ in wrong:
            crate = "/".join(path.split("/")[:2]) if path.endswith(".rs") and path.startswith("crates") else None
            part = crate or ("examples" if path.endswith(".rs") else "README and book" if path.startswith(("README", "docs")) else "other pages")
            counts[part] = counts.get(part, 0) + 1
        return print("\n".join(f"{number:5} {part}" for part, number in sorted(counts.items())), f"\n{len(wrong):5} in all")
    lines = [f"{path}:{line}: {fault}: {instead}: {sentence[:200]}" for path, line, fault, instead, sentence in wrong]
    lines += [] if named else [f".ci/prose.toml: no sentence needs the exception “{e['text']}” of {e['file']}" for e in unused]
    if lines:
        sys.exit("\n".join(lines))
    print(f"{len(set(names))} files keep the rules of .ci/prose.toml")


main()
