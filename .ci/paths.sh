# Sourced by run and long: the paths of products that compute the documented sums, by what this processor has.
has() { grep -qw "$1" /proc/cpuinfo 2>/dev/null; }
paths=(float32)
missing=()
path() { if "${@:2}"; then paths+=("$1"); else missing+=("$1"); fi; }
path avx2 eval 'has avx2 && has fma'
path avx512 eval 'has avx512f && has avx512bw'
path avx512_bf16 eval 'has avx512_bf16 && has avx512bw'
# `ProductPath::best` where products are to be reproducible.
best=${paths[-1]}
if [[ $best == avx512_bf16 ]] && ! grep -q AuthenticAMD /proc/cpuinfo; then best=avx512; fi
# The longest tests that multiply nothing.
without_products=(
    --skip checkpoints::hostile_files --skip suite::instruction_sets:: --skip suite::one_pass::large_ops
    --skip suite::packaging::
)
