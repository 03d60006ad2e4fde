"""Every name is documented, its examples are true, and the stubs have the names that there are."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

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


README = (ROOT / "crates" / "microscaling-python" / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_readmes_python_prints_what_it_says(program, capsys):
    if "import torch" in program:
        pytest.importorskip("torch", reason="PyTorch is not installed: one of the README's programs is not run")
    expected = re.findall(r"^print\(.*\) +# (.*)$", program, re.MULTILINE)
    assert expected
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == expected


def test_the_readmes_command_lines_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file({"proj.weight": np.ones((8, 64), np.float32)}, "model.safetensors")
    lines = re.findall(r"^microscaling .*$", README, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        ran = subprocess.run([Path(sys.executable).parent / "microscaling", *line.split()[1:]], capture_output=True)
        assert ran.returncode == 0, ran
