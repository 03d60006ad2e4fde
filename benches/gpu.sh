#!/usr/bin/env bash
# Everything that is to be known of a GPU, in one go of at most nine minutes, as one JSON. First all programs run side by side: they
# check, and they compile kernels and try strategies, whose results stay on disk. Then the measurements run one after another.
#
#   benches/gpu.sh build cuda     on any machine, without a GPU: the programs, into target/gpu and target/gpu.tar.xz
#   benches/gpu.sh run cuda OUT   where the GPU is: checks and measurements, into the folder OUT
#
# One of the two is carried along with the repository, whose golden files and data the programs read. CUDA's toolkit has to be
# there, with its libraries in LD_LIBRARY_PATH. `vulkan` and the other names of features stand for `cuda` as well.
set -euo pipefail
cd "$(dirname "$0")/.."

command=${1:?build or run} backend=${2:?the name of a backend, such as cuda}
folder=target/gpu archive=target/gpu.tar.xz

build() {
    mkdir -p "$folder"
    export MX_TEST_BACKEND=$backend
    local features=(--locked --no-default-features --features "$backend" --message-format json)
    # The executable of each target, as cargo names it.
    executables() { sed -n 's|.*"target":{[^}]*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*|\1 \2|p'; }
    {
        cargo test --release "${features[@]}" --test kernels --test host_round_trips --no-run
        cargo build --release "${features[@]}" --bin burn-mx-lab
        cargo bench "${features[@]}" --bench devices --bench train_step --no-run
    } | executables | while read -r name path; do
        strip -o "$folder/$name" "$path"
    done
    # Much smaller than the programs, which have most of their code in common.
    tar c -C "$(dirname "$folder")" "$(basename "$folder")" | xz --lzma2=preset=1,dict=512MiB >"$archive"
    ls -l "$folder" "$archive"
}

run() {
    local out=${3:?the folder for the results}
    mkdir -p "$out"
    if [[ -f $archive ]]; then tar xf "$archive" -C "$(dirname "$folder")"; fi
    local began=$SECONDS limit=520
    # Burn tries the strategies of its own products for fewer shapes, which takes minutes all the same.
    export CUBECL_AUTOTUNE_LEVEL=minimal
    # Compiled kernels belong to this run: the first steps are cold.
    XDG_CACHE_HOME=$(realpath "$out")/caches
    export XDG_CACHE_HOME
    local train_step=("$folder/train_step" --bench --backend "$backend" --model transformer2048)
    local devices=("$folder/devices" --bench --backend "$backend")
    # A step: its name, the seconds that it may take, its command. What fails or takes too long is said, and the next begins.
    step() {
        local name=$1 seconds=$2 rest=$((limit - (SECONDS - began)))
        shift 2
        if ((rest < 10)); then
            echo "\"$name\": \"left out: no time\"," >>"$out/steps"
            return
        fi
        local status=0
        timeout "$((seconds < rest ? seconds : rest))" "$@" >"$out/$name.log" 2>&1 || status=$?
        echo "\"$name\": {\"status\": $status, \"seconds\": $((SECONDS - began))}," >>"$out/steps"
    }
    rm -f "$out/steps"
    # One process compiles one kernel at a time: each test has its own, and so has each file of outputs.
    while read -r test; do
        step "${test//::/.}" 120 "$folder/kernels" --exact "$test" --nocapture </dev/null &
    done < <("$folder/kernels" --list | sed -n 's/: test$//p')
    for file in vector layers reuse ffn; do
        step "conformance.$file" 120 "$folder/burn-mx-lab" conformance tests/data/golden --backend "$backend" --file "$file" &
    done
    step host_round_trips 120 "$folder/host_round_trips" --nocapture &
    step compile.train_step 300 "${train_step[@]}" --seconds 0.1 &
    step compile.train_step_bfloat16 300 "${train_step[@]}" --peer bfloat16 --seconds 0.1 &
    step compile.devices 300 "${devices[@]}" --seconds 0.1 &
    wait
    step train_step 120 "${train_step[@]}" --json "$out/train_step.json"
    step train_step_bfloat16 80 "${train_step[@]}" --peer bfloat16 --json "$out/train_step_bfloat16.json"
    step devices 120 "${devices[@]}" --seconds 0.3 --json "$out/devices.json"
    step transformer 100 "$folder/burn-mx-lab" compare --model transformer --backend "$backend" --epochs 2 \
        --preset mxfp8_e4m3 --out "$out/transformer" --json "$out/transformer.json"
    file() { if [[ -s $1 ]]; then cat "$1"; else echo null; fi; }
    {
        echo "{\"date\": \"$(date -u +%F)\", \"backend\": \"$backend\","
        echo "\"gpu\": \"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)\","
        echo "\"steps\": {$(cat "$out/steps") \"end\": null},"
        echo "\"devices\": $(file "$out/devices.json"),"
        echo "\"train_step\": $(file "$out/train_step.json"),"
        echo "\"train_step_bfloat16\": $(file "$out/train_step_bfloat16.json"),"
        echo "\"transformer\": $(file "$out/transformer.json")}"
    } >"$out/gpu.json"
    tail -n 3 "$out"/*.log
}

"$command" "$@"
