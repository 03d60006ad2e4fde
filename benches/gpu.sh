#!/usr/bin/env bash
# Everything that is to be known of a GPU, in one go of at most nine minutes, as one JSON.
#
#   benches/gpu.sh build cuda     on any machine, without a GPU: the programs, into target/gpu
#   benches/gpu.sh run cuda OUT   where the GPU is: checks and measurements, into the folder OUT
#
# The programs are carried along with the repository, whose golden files and data they read. `vulkan` and the other names of
# features stand for `cuda` as well.
set -euo pipefail
cd "$(dirname "$0")/.."

command=${1:?build or run} backend=${2:?the name of a backend, such as cuda}
folder=target/gpu

build() {
    mkdir -p "$folder"
    export MX_TEST_BACKEND=$backend
    local features=(--locked --no-default-features --features "$backend" --message-format json)
    # The executable of each target, as cargo names it.
    executables() { sed -n 's|.*"target":{[^}]*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*|\1 \2|p'; }
    {
        cargo test --release "${features[@]}" --test kernels --test host_round_trips --no-run
        cargo build --release "${features[@]}" --example conformance --example compare
        cargo bench "${features[@]}" --bench devices --bench train_step --no-run
    } | executables | while read -r name path; do
        strip -o "$folder/$name" "$path"
    done
    ls -l "$folder"
}

run() {
    local out=${3:?the folder for the results}
    mkdir -p "$out"
    local began=$SECONDS limit=520
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
    step kernels 120 "$folder/kernels" --nocapture
    step host_round_trips 40 "$folder/host_round_trips" --nocapture
    step conformance 90 "$folder/conformance" tests/data/golden --backend "$backend"
    step devices 150 "$folder/devices" --bench --backend "$backend" --json "$out/devices.json"
    step train_step 120 "$folder/train_step" --bench --backend "$backend" \
        --model transformer2048 --model transformer --json "$out/train_step.json"
    step train_step_bfloat16 60 "$folder/train_step" --bench --backend "$backend" \
        --model transformer2048 --peer bfloat16 --json "$out/train_step_bfloat16.json"
    step transformer 100 "$folder/compare" --model transformer --backend "$backend" --epochs 2 \
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
