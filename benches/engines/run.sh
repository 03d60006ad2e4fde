#!/usr/bin/env bash
# Trains a language model in the numbers of engines, exports it, and compares the engines' logits with `valid()`. Prints a table.
#
#     benches/engines/run.sh [FOLDER]
#
# Needs the packages of language_model.py, by the `python` of the path. A run that was stopped goes on when the command is given again.
# STEPS and QAT_STEPS are the steps of the float model and of each format, WINDOWS the windows of 64 tokens that are compared. MODEL has more options of
# the float model, TRAIN of `train`, TEXT is another text.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-out/engines}
lm=${LM:-cargo run --release --quiet -p burn-mx-language-model --}
text=(${TEXT:+--text "$TEXT"})

# NVFP4 of llama.cpp needs inputs of layers in multiples of 64.
$lm train --formats fp32 ${MODEL:---width 192 --layers 2} --steps "${STEPS:-600}" --interval "${STEPS:-600}" --out "$out/float" "${text[@]}" >&2
echo "| engine | format | largest difference | largest share of the bound, at positions | next tokens that agree; of those beyond the bound | loss of valid() | loss of the engine |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
failed=0
for name in mxfp4_w4a16 mxfp4_w4a4 nvfp4_w4a16 nvfp4_w4a4 mxfp4_q8_0 nvfp4_q8_0; do
    recipe=$here/recipes/$name.json
    steps=${QAT_STEPS:-60}
    $lm train --from "$out/float/fp32" --qat --formats "$recipe" --steps "$steps" --interval "$steps" --lr 1e-4 --out "$out/qat" "${text[@]}" ${TRAIN:-} >&2
    trained=$out/qat/$name-qat
    logits="$out/$name.logits.json"
    config=()
    if [[ $name == *q8_0 ]]; then
        model=$out/$name.gguf
        $lm export "$trained" --engine gguf --format "$recipe" --out "$model" >&2
        # valid() of the trained model: nothing of a GGUF file is read here.
        $lm evaluate "$trained" --format "$recipe" --logits "$logits" --windows "${WINDOWS:-16}" "${text[@]}" >&2
        config=(--config "$trained/config.json")
    else
        model=$out/$name
        $lm export "$trained" --engine compressed-tensors --format "$recipe" --out "$model" >&2
        $lm evaluate "$model" --logits "$logits" --windows "${WINDOWS:-16}" "${text[@]}" >&2
    fi
    python "$here/language_model.py" "$model" "$logits" --format "$name" --bounds "${BOUNDS:-16}" "${config[@]}" || failed=1
done
exit $failed
