"""A cocotb testbench: reads the vectors of `microscaling vectors blocks`, drives a converter, and compares what comes out.

`python test_converter.py` simulates the converter of `chip.sv` in Icarus, or in the simulator that the variable SIM names.
"""

import json
import os
import sys
from pathlib import Path

import cocotb
from cocotb.triggers import Timer
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

# Of chip_pkg.
NEAREST_EVEN = 1


def cases():
    """The words of `blocks.hex`, one for each case."""
    for line in Path("blocks.hex").read_text().splitlines():
        word = line.split("//")[0].strip()
        if word:
            yield int(word, 16)


def fields():
    """Where each field of a word lies, and how many bits it has."""
    layout = json.loads(Path("blocks.layout.json").read_text())
    return {field["name"]: (field["lowest_bit"], field["bits"] * field["words"]) for field in layout["fields"]}


@cocotb.test()
async def every_case(dut):
    places = fields()

    def field(word, name):
        lowest_bit, bits = places[name]
        return word >> lowest_bit & ((1 << bits) - 1)

    dut.rounding.value = NEAREST_EVEN
    dut.draws.value = 0
    count = 0
    for number, word in enumerate(cases()):
        dut.x.value = field(word, "input")
        await Timer(1, "step")
        for port, name in [(dut.scale, "scale"), (dut.codes, "code")]:
            got, expected = int(port.value), field(word, name)
            assert got == expected, f"case {number}: {name} is {got:#x}, expected {expected:#x}"
        count += 1
    dut._log.info("%d cases, no difference", count)


if __name__ == "__main__":
    runner = get_runner(os.environ.get("SIM", "icarus"))
    runner.build(sources=["chip.sv"], hdl_toplevel="chip_quantize_block", always=True)
    results = runner.test(hdl_toplevel="chip_quantize_block", test_module="test_converter", test_dir=".")
    _, failed = get_results(results)
    sys.exit(failed > 0)
