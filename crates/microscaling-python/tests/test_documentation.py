"""Every name is documented, its examples are true, and the stubs have the names that there are."""

import ast
import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import microscaling as ms
from golden import ROOT


def test_examples():
    results = doctest.testmod(ms, extraglobs={"np": np}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted >= 5 and results.failed == 0


def test_everything_is_documented():
    for name in ms.__all__:
        thing = getattr(ms, name)
        assert name == "__version__" or inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                assert member.startswith("_") or value.__doc__, f"{name}.{member}"


def test_stubs_are_of_this_module():
    stubs = ast.parse(Path(ms.__file__).with_name("_native.pyi").read_text())
    for node in stubs.body:
        if isinstance(node, ast.FunctionDef):
            stubbed = [argument.arg for argument in node.args.args]
            assert stubbed == list(inspect.signature(getattr(ms._native, node.name)).parameters), node.name
        if isinstance(node, ast.ClassDef):
            there = {name for name in vars(getattr(ms, node.name)) if not name.startswith("_")}
            assert {item.name for item in node.body if item.name != "__new__"} == there, node.name
    there = {name for name in dir(ms._native) if not name.startswith("__")} | {"__version__"}
    names = {getattr(node, "name", None) or node.target.id for node in stubs.body if not isinstance(node, (ast.Expr, ast.ImportFrom, ast.Import))}
    assert names == there
    assert Path(ms.__file__).with_name("py.typed").exists()


def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "crates" / "microscaling-python" / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(programs) >= 2
    for program in programs:
        if "import torch" in program:
            pytest.importorskip("torch", reason="PyTorch is not installed: one of the README's programs is not run")
        # What a line prints is in the comment at its end.
        expected = re.findall(r"print\(.*\) +# (.*)", program)
        exec(compile(program, "README.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == expected
