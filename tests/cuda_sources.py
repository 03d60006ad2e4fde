"""Compiles CUDA's sources of the kernels with NVRTC, for which no GPU is needed.

    pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12
    MX_CUDA_SOURCES=DIR cargo test --release -p burn-mx-kernels --features cuda --lib sources
    python3 tests/cuda_sources.py DIR

Fails if one is not accepted, and if the machine code flushes subnormal numbers, divides approximately, or has fused a
product with a sum that the source has not, but for the recorder's sums.
"""

import ctypes
import importlib.util
import pathlib
import re
import sys


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

    def text(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()

    def compile(self, source):
        """PTX of a source, or what is wrong with it."""
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None)
        options = (ctypes.c_char_p * len(self.options))(*[option.encode() for option in self.options])
        if self.library.nvrtcCompileProgram(program, len(self.options), options) != 0:
            lines = self.text(program, "ProgramLog").splitlines()
            return None, [line for line in lines if "error" in line]
        return self.text(program, "PTX"), []


def problems(name, source, ptx):
    """What of the machine code gives other numbers than the source says."""
    if re.search(r"\.ftz\b", ptx):
        yield "subnormal numbers are flushed"
    if re.search(r"\b(div|sqrt|rcp)\.(approx|full)", ptx):
        yield "divisions or roots are approximate"
    # The recorder's float32 sums have a tolerance.
    if name.startswith("statistics_"):
        return
    fused, written = len(re.findall(r"\bfma\.rn\.f32", ptx)), len(re.findall(r"\bfmaf?\(", source))
    if fused > written:
        yield f"{fused} fused products and sums, where the source has {written}"


def main():
    sources = sorted(pathlib.Path(sys.argv[1]).glob("*.cu"))
    nvrtc, failed = Nvrtc(), 0
    for path in sources:
        source = path.read_text()
        ptx, errors = nvrtc.compile(source)
        errors += problems(path.name, source, ptx) if ptx else []
        print(f"{path.name}: {'; '.join(errors) or 'compiled'}")
        failed += bool(errors)
    if failed or not sources:
        sys.exit(f"{failed} of {len(sources)} sources are wrong")


main()
