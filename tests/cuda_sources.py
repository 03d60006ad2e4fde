"""Compiles CUDA's sources of the kernels with NVRTC, for which no GPU is needed.

    pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvdisasm
    MX_CUDA_SOURCES=DIR cargo test --release -p burn-mx-kernels --features cuda --lib sources
    python3 tests/cuda_sources.py DIR             # what is wrong, and the machine code in numbers
    python3 tests/cuda_sources.py DIR --record    # writes cuda_sources.json anew

Fails if one is not accepted, and if the machine code flushes subnormal numbers, divides approximately, or has fused a
product with a sum that the source has not, but for the recorder's sums.

Where nvdisasm is installed, the instructions of Hopper's machine code are counted, for the kernels of which a unit works on a
fixed number of elements, and compared with recorded counts. A kernel that became slower has more of them. The counts belong to
one version of NVRTC. Another version only prints. An H100 has integer instructions at half rate: about 40 of them an element, or 75
instructions of all kinds, take as long as a copy of float32 (3 TB/s, 132 multiprocessors, 1.7 GHz).
"""

import collections
import ctypes
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

RECORD = pathlib.Path(__file__).with_suffix(".json")
# By how much a count may grow, and by how much it may shrink until the record is to be written anew.
SLACK = 0.03
# Products that are fused with sums in CUDA's own logarithm.
FUSED_IN_LOGARITHM = 12
# Elements that a unit works on, by the beginning of a kernel's name.
ELEMENTS = {
    "both_axes_": 4,
    "scaled": 1,
    "shared_": 4,
    "hadamard_whole_blocks": 16,
    "inverse_hadamard_whole_blocks": 16,
    "rows_1024": 16,
    "rows_2048": 8,
}
# Kernels that write each element twice, by the beginning of the name.
TWICE = ("both_axes_",)
INTEGER = re.compile(
    r"(IADD|IMAD|LOP|SHF|ISETP|SEL|LEA|V?IMNMX|PRMT|FLO|POPC|IABS|ISCADD|I2F|F2I|BREV|SGXT|BMSK|VIADD|PLOP|R2P|FMNMX|FSEL|FSETP|FCHK)"
)


def package(name):
    """The folder of one of NVIDIA's packages."""
    spec = importlib.util.find_spec(f"nvidia.{name}")
    return pathlib.Path(spec.submodule_search_locations[0])


class Nvrtc:
    def __init__(self):
        folder = package("cuda_nvrtc") / "lib"
        # It looks for this one by its name alone.
        for builtins in folder.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(next(folder.glob("libnvrtc.so*"))))
        self.options = ["--gpu-architecture=sm_90", f"--include-path={package('cuda_runtime') / 'include'}"]

    def bytes(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw

    def compile(self, source):
        """PTX and machine code of a source, or what is wrong with it."""
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None)
        options = (ctypes.c_char_p * len(self.options))(*[option.encode() for option in self.options])
        if self.library.nvrtcCompileProgram(program, len(self.options), options) != 0:
            lines = self.bytes(program, "ProgramLog").decode().splitlines()
            return None, None, [line for line in lines if "error" in line]
        return self.bytes(program, "PTX").decode(), self.bytes(program, "CUBIN"), []


def problems(name, source, ptx):
    """What of the machine code gives other numbers than the source says."""
    if re.search(r"\.ftz\b", ptx):
        yield "subnormal numbers are flushed"
    if re.search(r"\b(div|sqrt|rcp)\.(approx|full)", ptx):
        yield "divisions or roots are approximate"
    # The recorder's float32 sums have a tolerance.
    if name.startswith("statistics_"):
        return
    # A product with a power of two is exact, fused or not.
    factors = re.findall(r"\bfma\.rn\.f32\s+[^,]+,[^,]+,\s*([^,]+),", ptx)
    fused = sum(not re.fullmatch(r"0f[0-9A-F]{2}[08]00000", factor) for factor in factors)
    written = len(re.findall(r"\bfmaf?\(", source))
    written += FUSED_IN_LOGARITHM * len(re.findall(r"\blogf?\(", source))
    if fused > written:
        yield f"{fused} fused products and sums, where the source has {written}"


def disassembler():
    """NVIDIA's disassembler, if its package is installed."""
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(folder) for folder in spec.submodule_search_locations]
    return next((path for folder in folders for path in folder.glob("**/bin/nvdisasm")), None)


def counted(nvdisasm, machine_code, elements, results):
    """The instructions of machine code by name, on its shortest way, and how many there are in all."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        text = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
    steps, labels = [], {}
    for line in text.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(steps)
        elif step := re.search(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_]+)(.*)", line):
            steps.append(step.groups())
    in_all = sum(name != "NOP" for _, name, _ in steps)
    return collections.Counter(shortest_way(steps, labels, elements, results)), in_all


def shortest_way(steps, labels, elements, results):
    """The names of the instructions on the shortest way through machine code that reads as many numbers as there are elements, and writes
    as many as there are results. A block of ordinary numbers takes this way: all others are longer."""
    start = 0, 0, 0
    before, waiting = {start: None}, collections.deque([start])
    while waiting:
        here = waiting.popleft()
        at, read, written = here
        condition, name, operands = steps[at]
        read = min(read + (name == "LDG"), elements)
        written = min(written + (name == "STG"), results)
        if name == "EXIT" and (read, written) == (elements, results):
            way = []
            while here:
                way.append(steps[here[0]][1])
                here = before[here]
            return [name for name in way if name != "NOP"]
        target = re.search(r"`\((\.L_\w+)\)", operands) if name == "BRA" else None
        is_certain = not condition and not re.match(r"[.\w]*\s+!?U?P\d", operands)
        following = [labels[target[1]]] if target else []
        if not (name in ("EXIT", "RET", "BRA") and is_certain):
            following.append(at + 1)
        for place in following:
            state = place, read, written
            if place < len(steps) and state not in before:
                before[state] = here
                waiting.append(state)
    raise ValueError("no way reads and writes all elements")


def compared(counts, record):
    """What is wrong with the counts of kernels; prints them."""
    version = importlib.metadata.version("nvidia-cuda-nvrtc-cu12")
    if record:
        integers = {name: {"integer": integer, "all": total} for name, (integer, total, *_) in counts.items()}
        RECORD.write_text(json.dumps({"nvrtc": version, "instructions": integers}, indent=2) + "\n")
    recorded = json.loads(RECORD.read_text())
    for name, (integer, total, in_all, elements, names) in counts.items():
        others = {what: names[what] for what in ("CALL", "BAR", "SHFL", "STL") if names[what]}
        others["in all"] = in_all
        each = f"{integer / elements:6.1f} integer, {total / elements:6.1f} of all kinds an element"
        print(f"{name:36} {each}", *(f"{what} {count}" for what, count in others.items()))
        before = recorded["instructions"].get(name, {"all": 0})["all"]
        if recorded["nvrtc"] == version and abs(total - before) > SLACK * before:
            yield f"{name}: {total} instructions, recorded are {before}; if that is meant, write the record anew"
    for name in recorded["instructions"].keys() - counts.keys():
        yield f"{name}: recorded, and there is no such source; if that is meant, write the record anew"


def main():
    sources = sorted(pathlib.Path(sys.argv[1]).glob("*.cu"))
    nvrtc, nvdisasm, failed, counts = Nvrtc(), disassembler(), 0, {}
    for path in sources:
        source = path.read_text()
        ptx, machine_code, errors = nvrtc.compile(source)
        errors += problems(path.name, source, ptx) if ptx else []
        print(f"{path.name}: {'; '.join(errors) or 'compiled'}")
        failed += bool(errors)
        if nvdisasm and machine_code and path.name.startswith(tuple(ELEMENTS)):
            elements = next(count for start, count in ELEMENTS.items() if path.name.startswith(start))
            results = 2 * elements if path.name.startswith(TWICE) else elements
            names, in_all = counted(nvdisasm, machine_code, elements, results)
            integer = sum(count for name, count in names.items() if INTEGER.match(name))
            counts[path.stem] = integer, sum(names.values()), in_all, elements, names
    if not nvdisasm:
        print("there is no nvdisasm: machine code is not counted")
    wrong = list(compared(counts, "--record" in sys.argv)) if nvdisasm else []
    if failed or not sources or wrong:
        sys.exit("\n".join([f"{failed} of {len(sources)} sources are wrong", *wrong]))


main()
