#!/usr/bin/env bash
# Everything that is to be known of a GPU, in one go of at most nine minutes, as one JSON. First all programs run side by side: they
# check, and they compile kernels and try strategies, whose results stay on disk. Then the measurements run one after another, the most
# important ones first. Each step has its status, the seconds since the start, and the most memory of the GPU in use.
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
        cargo test --release "${features[@]}" --test kernels --test suite --no-run
        cargo build --release "${features[@]}" --bin burn-mx-lab --example ffn
        cargo bench "${features[@]}" --bench devices --bench train_step --bench strategies --no-run
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
    local train_step=("$folder/train_step" --bench --backend "$backend")
    local devices=("$folder/devices" --bench --backend "$backend")
    local strategies=("$folder/strategies" --bench --product "2048 to 8192" --product "attention")
    local first=("${train_step[@]}" --model transformer2048)
    local others=("${train_step[@]}" --model transformer2048 --peer none --preset nvfp4 --preset quartet)
    local ffn=("${train_step[@]}" --model ffn2048)
    # The GPU's memory in use, in MiB, now and then, until the process ends.
    memory() {
        while nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null; do sleep 0.2; done
    }
    # A step: its name, the seconds that it may take, its command. What fails or takes too long is said, and the next begins.
    step() {
        local name=$1 seconds=$2 rest=$((limit - (SECONDS - began)))
        shift 2
        if ((rest < 10)); then
            echo "\"$name\": \"left out: no time\"," >>"$out/steps"
            return
        fi
        local status=0 peak
        memory >"$out/$name.memory" &
        local watch=$!
        timeout "$((seconds < rest ? seconds : rest))" "$@" >"$out/$name.log" 2>&1 || status=$?
        kill "$watch" 2>/dev/null || true
        peak=$(sort -n "$out/$name.memory" | tail -1)
        rm -f "$out/$name.memory"
        echo "\"$name\": {\"status\": $status, \"seconds\": $((SECONDS - began)), \"peak_mib\": ${peak:-null}}," >>"$out/steps"
    }
    rm -f "$out/steps"
    # One process compiles one kernel at a time: each test has its own, and so has each file of outputs.
    while read -r test; do
        step "${test//::/.}" 120 "$folder/kernels" --exact "$test" --nocapture </dev/null &
    done < <("$folder/kernels" --list | sed -n '/::case: test$/d; s/: test$//p')
    for file in golden/{vector,layers,reuse,ffn} accumulators/products; do
        local name=${file#*/}
        step "conformance.$name" 120 "$folder/burn-mx-lab" conformance "tests/data/${file%/*}" --backend "$backend" --file "$name" &
    done
    step compile.first 300 "${first[@]}" --seconds 0.1 &
    step compile.first_bfloat16 300 "${first[@]}" --peer bfloat16 --seconds 0.1 &
    step compile.others 300 "${others[@]}" --seconds 0.1 &
    step compile.ffn 300 "${ffn[@]}" --seconds 0.1 &
    step compile.ffn_bfloat16 300 "${ffn[@]}" --peer bfloat16 --seconds 0.1 &
    step compile.devices 300 "${devices[@]}" --seconds 0.1 &
    step compile.strategies 300 "${strategies[@]}" --time 1 &
    wait
    step transformer 80 "${first[@]}" --seconds 1 --json "$out/transformer.json"
    step transformer_bfloat16 60 "${first[@]}" --seconds 1 --peer bfloat16 --json "$out/transformer_bfloat16.json"
    step transformer_reproducible 40 env MICROSCALING_PRODUCT=reproducible "${first[@]}" --peer none --seconds 1 \
        --json "$out/transformer_reproducible.json"
    step transformer_others 40 "${others[@]}" --seconds 1 --json "$out/transformer_others.json"
    step ffn 60 "${ffn[@]}" --seconds 1 --json "$out/ffn.json"
    step ffn_bfloat16 60 "${ffn[@]}" --seconds 1 --peer bfloat16 --json "$out/ffn_bfloat16.json"
    step devices 60 "${devices[@]}" --seconds 0.3 --json "$out/devices.json"
    step peers 60 python3 benches/peers/gpu.py --seconds 0.5 --json "$out/peers.json"
    step compare 60 "$folder/burn-mx-lab" compare --model transformer --backend "$backend" --epochs 2 --preset mxfp8_e4m3 \
        --out "$out/compare" --json "$out/compare.json"
    step strategies 60 "${strategies[@]}" --time 30 --json "$out/strategies.json"
    # The README's main job, with the kernels that are on disk by now.
    step main_job 100 "$folder/ffn" --backend "$backend" --epochs 3 --out "$out/main_job"
    step suite 60 env MX_TEST_BACKEND="$backend" "$folder/suite" slots::each stochastic:: roles:: transparency::specs
    file() { if [[ -s $1 ]]; then cat "$1"; else echo null; fi; }
    {
        echo "{\"date\": \"$(date -u +%F)\", \"backend\": \"$backend\","
        echo "\"gpu\": \"$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)\","
        echo "\"steps\": {$(cat "$out/steps") \"end\": null},"
        for name in transformer{,_bfloat16,_reproducible,_others} ffn{,_bfloat16} devices strategies peers compare; do
            echo "\"$name\": $(file "$out/$name.json"),"
        done
        echo "\"end\": null}"
    } >"$out/gpu.json"
    tail -n 3 "$out"/*.log
}

"$command" "$@"
