#!/usr/bin/env bash
# Trains LoRA and DoRA beside a language model's packed weights, loads the adapters by PEFT on the values of the packed weights, and compares logits.
# Prints a table.
#
#     benches/engines/adapters.sh [FOLDER]
#
# Needs torch, transformers, peft, safetensors and numpy, by the `python` of the path. STEPS and LORA_STEPS are the steps of the float model and of
# the adapters, WINDOWS the windows of 64 tokens that are compared. MODEL has more options of the float model, TRAIN of `train`, TEXT is another text.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-out/adapters}
lm=${LM:-cargo run --release --quiet -p burn-mx-language-model --}
text=(${TEXT:+--text "$TEXT"})
recipe=$here/recipes/mxfp4_w4a16.json

$lm train --formats fp32 ${MODEL:---width 192 --layers 2} --steps "${STEPS:-600}" --interval "${STEPS:-600}" --out "$out/float" "${text[@]}" ${TRAIN:-} >&2
$lm export "$out/float/fp32" --engine compressed-tensors --format "$recipe" --out "$out/base" >&2
echo "| engine | adapter | largest difference | largest share of the bound, at positions | next tokens that agree; of those beyond the bound | loss of valid() | loss of the engine |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
failed=0
for kind in lora dora; do
    steps=${LORA_STEPS:-60}
    options=(--lora 4)
    if [[ $kind == dora ]]; then options+=(--dora); fi
    $lm train --from "$out/base" --qat --formats "$recipe" "${options[@]}" --steps "$steps" --interval "$steps" --lr 3e-3 --out "$out/tuned" "${text[@]}" ${TRAIN:-} >&2
    adapter=$out/tuned/mxfp4_w4a16-qat-$kind/adapter
    logits=$out/$kind.logits.json
    $lm evaluate "$out/base" --format "$recipe" --adapter "$adapter" --logits "$logits" --windows "${WINDOWS:-16}" "${text[@]}" >&2
    python "$here/language_model.py" "$out/base" "$logits" --adapter "$adapter" --format "$kind" --bounds "${BOUNDS:-4}" || failed=1
done
exit $failed
