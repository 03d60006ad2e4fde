#!/usr/bin/env python3
"""Lists the public API of the published crates in docs/api/CRATE.txt, one line an item, from rustdoc's JSON.

    python3 .ci/public_api.py            # writes the lists
    python3 .ci/public_api.py --check    # fails with a diff where a list differs

A list names modules, types with their fields and variants, traits, functions with the types of their arguments, constants,
re-exports, and the traits that a type implements. It leaves out items under `#[doc(hidden)]`, auto traits and blanket impls.
The features are those with which docs.rs builds the docs.
"""

import difflib
import json
import os
import pathlib
import subprocess
import sys

from published import ROOT, crates, doc_command, features_of_docs

CRATES = "microscaling microscaling-c microscaling-checkpoint microscaling-product microscaling-vectors burn-mx-cost burn-mx-files burn-mx-kernels burn-mx-core burn-mx-module burn-mx-record burn-mx-onnx burn-mx-optim burn-mx-ptq burn-mx-checkpoint burn-mx".split()
# rustdoc's JSON is unstable: another version may have other fields.
FORMAT = 57
KINDS = {"module": "mod", "struct_field": "field", "constant": "const", "assoc_const": "const", "assoc_type": "type", "type_alias": "type"}
# Set where cargo calls this script in the place of rustdoc.
AS_RUSTDOC = "PUBLIC_API_AS_RUSTDOC"


class Api:
    """The public items of one crate. `walk` finds the path of each, after which `line` can name any of them."""

    def __init__(self, crate):
        self.index, self.paths, self.found, self.uses = crate["index"], {}, [], []
        self.walk(crate["root"], "")
        impls = [i["inner"]["impl"] for i in self.index.values() if i["crate_id"] == 0 and "impl" in i["inner"]]
        for impl in impls:
            path = self.paths.get(impl["for"].get("resolved_path", {}).get("id"))
            for id in impl["items"] if path and not impl["trait"] else []:
                self.walk(id, path, of=impl)
        lines = [(path, 0, self.line(path, item, of)) for path, item, of in self.found]
        lines += [(path, 0, f"use {path} = {source}") for path, source in self.uses]
        lines += [line for line in map(self.impl, impls) if line]
        self.lines = [line for _, _, line in sorted(set(lines))]

    def walk(self, id, parent, name=None, of=None):
        """Takes note of an item, and of what stands in it. `of` is the trait or the impl of a function."""
        item = self.index.get(str(id))
        if item is None:
            return
        (kind, inner), = item["inner"].items()
        if kind == "use":
            return self.use(inner, parent)
        path = f"{parent}::{name or item['name']}".removeprefix("::")
        if id in self.paths:
            return self.uses.append((path, self.paths[id]))
        self.paths[id] = path
        self.found.append((path, item, of))
        inside = inner.get("items") or inner.get("variants") or inner.get("fields") or [] if isinstance(inner, dict) else []
        if kind in ("struct", "variant") and isinstance(inner["kind"], dict):
            (fields,) = inner["kind"].values()
            inside = fields["fields"] if isinstance(fields, dict) else []
        # Re-exports come last: they may name once more what stands beside them.
        for id in sorted(inside, key=lambda id: "use" in self.index.get(str(id), {"inner": ()})["inner"]):
            self.walk(id, path, of=inner if kind == "trait" else None)

    def use(self, use, parent):
        target = self.index.get(str(use["id"]))
        if target is None or target["crate_id"] != 0:
            self.uses.append((f"{parent}::{'*' if use['is_glob'] else use['name']}", use["source"]))
        elif use["is_glob"]:
            (inner,) = target["inner"].values()
            for id in inner.get("items") or inner.get("variants"):
                self.walk(id, parent)
        else:
            self.walk(use["id"], parent, use["name"])

    def line(self, path, item, of):
        (kind, inner), = item["inner"].items()
        generics, where = self.generics(inner["generics"]) if "generics" in inner else ("", "")
        name = ("#[non_exhaustive] " if "non_exhaustive" in item["attrs"] else "") + f"{KINDS.get(kind, kind)} {path}{generics}"
        if kind == "function":
            words = [word for word in ("const", "async", "unsafe") if inner["header"][f"is_{word}"]]
            text = " ".join([*words, f"fn {path}{generics}{self.signature(inner['sig'])}{where}"])
            if of and "for" in of:
                bounds = "".join(self.generics(of["generics"]))
                return text + (f" in impl{bounds}" if bounds else "")
            return text + " { .. }" * bool(of and inner["has_body"])
        if kind in ("struct", "variant") and isinstance(inner["kind"], dict) and "tuple" in inner["kind"]:
            fields = [self.index.get(str(id)) for id in inner["kind"]["tuple"]]
            types = [self.type(field["inner"]["struct_field"]) if field else "_" for field in fields]
            return f"{name}({', '.join(types)}){where}"
        if kind == "struct_field":
            return f"{name}: {self.type(inner)}"
        if kind == "trait":
            return ("unsafe " if inner["is_unsafe"] else "") + name + self.bounds(inner["bounds"], ": ") + where
        if kind in ("constant", "static", "assoc_const"):
            return f"{name}: {self.type(inner['type'])}"
        if kind in ("type_alias", "assoc_type"):
            value = f" = {self.type(inner['type'])}" if inner["type"] else ""
            return name + self.bounds(inner.get("bounds", []), ": ") + where + value
        has_private = '"has_stripped_fields": true' in json.dumps(inner) or inner.get("has_stripped_variants")
        return name + where + (" { .. }" if has_private else "")

    def impl(self, impl):
        """The line of a trait's impl, under its type, or under the trait if the type is another crate's. None of a hidden type."""
        if not impl["trait"] or impl["is_synthetic"] or impl["blanket_impl"] or impl["trait"]["path"] == "StructuralPartialEq":
            return None
        ids = [impl["for"].get("resolved_path", {}).get("id"), impl["trait"]["id"]]
        hidden = self.index.get(str(ids[0]), {}).get("crate_id") == 0 and ids[0] not in self.paths
        if hidden:
            return None
        path = next((self.paths[id] for id in ids if id in self.paths), "")
        generics, where = self.generics(impl["generics"])
        return path, 1, f"impl{generics} {self.path(impl['trait'])} for {self.type(impl['for'])}{where}"

    def signature(self, sig):
        """Arguments by their types alone: a name is free to change."""
        receivers = {"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}
        types = [(name, self.type(type)) for name, type in sig["inputs"]]
        inputs = [receivers.get(type, f"self: {type}") if name == "self" else type for name, type in types]
        return f"({', '.join(inputs)})" + (f" -> {self.type(sig['output'])}" if sig["output"] else "")

    def generics(self, generics):
        params, where = [], []
        for param in generics["params"]:
            (kind, inner), = param["kind"].items()
            if kind == "lifetime":
                params.append(": ".join([param["name"], *inner["outlives"]]))
            elif kind == "const":
                params.append(f"const {param['name']}: {self.type(inner['type'])}")
            elif not inner["is_synthetic"]:
                default = f" = {self.type(inner['default'])}" if inner["default"] else ""
                params.append(param["name"] + self.bounds(inner["bounds"], ": ") + default)
        for predicate in generics["where_predicates"]:
            inner = predicate["bound_predicate"]
            of = self.binder(inner["generic_params"]) + self.type(inner["type"])
            where.append(of + self.bounds(inner["bounds"], ": "))
        return f"<{', '.join(params)}>" if params else "", f" where {', '.join(where)}" if where else ""

    def binder(self, params):
        return f"for<{', '.join(param['name'] for param in params)}> " if params else ""

    def bounds(self, bounds, before=""):
        return before + " + ".join(map(self.bound, bounds)) if bounds else ""

    def bound(self, bound):
        (kind, inner), = bound.items()
        if kind != "trait_bound":
            return inner if kind == "outlives" else "use<..>"
        return self.binder(inner["generic_params"]) + "?" * (inner["modifier"] == "maybe") + self.path(inner["trait"])

    def path(self, path):
        """The name of a type or trait. The source writes `fmt::Result` where it means that one."""
        of, _, name = self.paths.get(path["id"], path["path"]).rpartition("::")
        name = f"{of.rpartition('::')[2]}::{name}" if of and name in ("Result", "Error") else name
        return name + self.args(path["args"])

    def args(self, args):
        if not args or args == "return_type_notation":
            return ""
        if "parenthesized" in args:
            return self.signature({**args["parenthesized"], "inputs": [("", t) for t in args["parenthesized"]["inputs"]]})
        inner, parts = args["angle_bracketed"], []
        for arg in inner["args"]:
            parts.append("_" if arg == "infer" else arg.get("lifetime") or self.term(arg))
        for constraint in inner["constraints"]:
            (kind, binding), = constraint["binding"].items()
            value = f" = {self.term(binding)}" if kind == "equality" else self.bounds(binding, ": ")
            parts.append(constraint["name"] + self.args(constraint["args"]) + value)
        return f"<{', '.join(parts)}>" if parts else ""

    def term(self, term):
        (kind, inner), = term.items()
        return self.type(inner) if kind == "type" else inner["expr"]

    def type(self, type):
        (kind, inner), = type.items() if type != "infer" else [("primitive", "_")]
        if kind == "resolved_path":
            return self.path(inner)
        if kind in ("generic", "primitive"):
            return "!" if inner == "never" else inner
        if kind == "borrowed_ref":
            lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
            return f"&{lifetime}{'mut ' * inner['is_mutable']}{self.type(inner['type'])}"
        if kind == "tuple":
            return f"({', '.join(map(self.type, inner))}{',' * (len(inner) == 1)})"
        if kind == "slice":
            return f"[{self.type(inner)}]"
        if kind == "array":
            return f"[{self.type(inner['type'])}; {inner['len']}]"
        if kind == "impl_trait":
            return f"impl {self.bounds(inner)}"
        if kind == "dyn_trait":
            traits = [self.binder(one["generic_params"]) + self.path(one["trait"]) for one in inner["traits"]]
            return "dyn " + " + ".join(traits + [inner["lifetime"]] * bool(inner["lifetime"]))
        if kind == "function_pointer":
            return f"{self.binder(inner['generic_params'])}fn{self.signature(inner['sig'])}"
        if kind == "qualified_path":
            of, trait = self.type(inner["self_type"]), inner["trait"]
            of = f"<{of} as {self.path(trait)}>" if trait and trait["path"] and of != "Self" else of
            return f"{of}::{inner['name']}{self.args(inner['args'])}"
        raise SystemExit(f"public_api.py: there is no text for a type of rustdoc's kind {kind}")


def apis():
    """Every crate's API. The docs of `.ci/run` have compiled all dependencies: cargo is called with the same arguments."""
    script, json_flags = str(ROOT / ".ci/public_api.py"), "-Z unstable-options --output-format json"
    env = {**os.environ, "RUSTDOC": script, "RUSTDOCFLAGS": json_flags, AS_RUSTDOC: "1"}
    command = doc_command(features_of_docs(crates()))
    subprocess.run(["cargo", *command], cwd=ROOT, env=env, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for crate in CRATES:
        api = json.loads((target / "doc" / f"{crate.replace('-', '_')}.json").read_text())
        if api["format_version"] != FORMAT:
            # Another rustdoc may word the same API otherwise: the list is of this one.
            print(f"not checked: the list is of rustdoc's format {FORMAT}, and this is {api['format_version']}")
            sys.exit(0 if "--check" in sys.argv[1:] else 1)
        yield ROOT / "docs" / "api" / f"{crate}.txt", Api(api).lines


def main():
    differs = False
    for file, new in apis():
        name = str(file.relative_to(ROOT))
        if "--check" in sys.argv[1:]:
            old = file.read_text().splitlines() if file.exists() else []
            diff = list(difflib.unified_diff(old, new, name, "the source", lineterm="", n=0))
            differs |= bool(diff)
            print("\n".join(diff) if diff else f"{name}: {len(new)} items")
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(f"{line}\n" for line in new))
            print(f"{name}: {len(new)} items")
    if differs:
        sys.exit("The public API differs from its list. Where that is meant, run `python3 .ci/public_api.py`.")


if AS_RUSTDOC in os.environ:
    # For rustdoc alone: build scripts ask for this variable, and cargo would compile most dependencies anew.
    os.execvpe("rustdoc", ["rustdoc", *sys.argv[1:]], {**os.environ, "RUSTC_BOOTSTRAP": "1"})
main()
