#!/usr/bin/env bash
# Rounding to nearest, GPTQ, QAT and QAD of a language model, weights and inputs, with the head and attention in float32: the loss on the validation
# text, for several seeds.
#
#     benches/engines/qat.sh [FOLDER]
#
# A run that was stopped goes on when the command is given again: a finished figure is a file. SEEDS, STEPS, QAT_STEPS and ARGS (sizes of the model)
# change the run, TEXT is another text. Takes about half an hour a seed on two cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-out/qat}
lm=${LM:-cargo run --release --quiet -p burn-mx-language-model --}
text=(${TEXT:+--text "$TEXT"})
mkdir -p "$out"

# figure NAME COMMAND…: the loss that a command prints, from the file NAME or by the command.
figure() {
    local file=$out/$1.txt
    shift
    if [[ ! -s $file ]]; then
        $lm "$@" "${text[@]}" >"$file.part"
        mv "$file.part" "$file"
    fi
    sed -n 's/^loss \([0-9.]*\) nats.*/\1/p' "$file"
}

echo "| seed | recipe | float32 | to nearest | GPTQ | QAT | QAD |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for seed in ${SEEDS:-0 1 2}; do
    float=$out/float-$seed/fp32
    # shellcheck disable=SC2086
    $lm train --formats fp32 --steps "${STEPS:-2000}" --seed "$seed" --out "$out/float-$seed" "${text[@]}" ${ARGS:-} >&2
    whole=$(figure "float-$seed" evaluate "$float")
    for name in mxfp4_w4a4 nvfp4_w4a4; do
        recipe=$here/recipes/$name.json
        tune=(train --from "$float" --qat --formats "$recipe" --steps "${QAT_STEPS:-500}" --lr 1e-4 --seed "$seed" "${text[@]}")
        $lm "${tune[@]}" --out "$out/qat-$seed" >&2
        $lm "${tune[@]}" --teacher "$float" --out "$out/qad-$seed" >&2
        nearest=$(figure "nearest-$seed-$name" evaluate "$float" --format "$recipe")
        # GPTQ has the scales of the format's rule.
        case $name in mxfp4*) config=MXFP4E2M1_GPTQ ;; *) config=NVFP4_GPTQ ;; esac
        table=$out/gptq-$seed-$name.json
        [[ -s $table ]] || $lm quantize "$float" --configs "$config" --scope dynamic --seeds "$seed" --json "$table" "${text[@]}" >&2
        gptq=$(python3 -c 'import json, sys; print("%.4f" % json.load(open(sys.argv[1]))["rows"][-1]["score"]["loss"])' "$table")
        qat=$(figure "qat-$seed-$name" evaluate "$out/qat-$seed/$name-qat" --format "$recipe")
        qad=$(figure "qad-$seed-$name" evaluate "$out/qad-$seed/$name-qat" --format "$recipe")
        echo "| $seed | $name | $whole | $nearest | $gptq | $qat | $qad |"
    done
done
