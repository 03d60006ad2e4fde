#!/usr/bin/env bash
# Goes on training the CNN of examples/onnx in formats, writes it as ONNX models, and compares the logits of ONNX Runtime with `valid()`. Prints a table.
#
#     benches/engines/cnn.sh [FOLDER]
#
# Needs torch, onnx, onnxruntime, numpy and safetensors, by the `python` of the path. TRAIN has more options of `train`, such as `--epochs 1`. EXAMPLE
# and QUANTIZE are the two programs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-out/cnn}
example=${EXAMPLE:-cargo run --release --quiet -p burn-mx-onnx-example --}
quantize=${QUANTIZE:-cargo run --release --quiet -p burn-mx-onnx --}
network=$here/../../examples/onnx/digits_cnn
mkdir -p "$out"

# From operator set 21 on weights in FP8 are DequantizeLinear's.
python -c 'import onnx, sys; onnx.save(onnx.version_converter.convert_version(onnx.load(sys.argv[1]), 21), sys.argv[2])' \
    "$network.onnx" "$out/float.onnx"
echo "| engine | format | largest difference | largest share of the bound, at digits | classes that agree; of those beyond the bound | loss of valid() | loss of the engine | top-1 |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
failed=0
for row in MXFP8E4M3 MXINT8 MXFP4E2M1 "MXFP4E2M1 --weights-only" "NVFP4 --weights-only"; do
    read -ra how <<<"$row"
    name=${row// /}
    $example train --config "${how[@]}" --out "$out/$name" ${TRAIN:-} >&2
    $quantize "$out/float.onnx" --config "${how[@]}" --tuned "$out/$name/tuned.safetensors" --output "$out/$name.onnx" --force >&2
    python "$here/cnn.py" "$out/$name.onnx" "$out/$name/logits.safetensors" --data "$network.safetensors" --format "${how[@]}" || failed=1
done
exit $failed
