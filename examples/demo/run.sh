#!/usr/bin/env bash
# What heed does, on real input: run, check, and compare with plain attention.
# Usage: run.sh [LENGTH,LENGTH,...]
# Environment: HEED_CLI, or HEED_BUILD_DIR that contains tools/heed/heed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly HEED="${HEED_CLI:-${HEED_BUILD_DIR:-build/release}/tools/heed/heed}"
readonly CAPTURE=examples/capture/smollm2.safetensors
readonly LAYERS=(0 14 29)
readonly LENGTHS="${1:-512,1024,2048,4096,8192,16384,32768}"
readonly OUT=out

heading() {
  if [[ -t 1 ]]; then printf '\n\033[1m%s\033[0m\n' "$1"; else printf '\n%s\n' "$1"; fi
}

# A Python that has matplotlib: the one on the path may be another than Debian's.
plotting_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import matplotlib' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "demo: no Python with matplotlib (Debian: apt-get install python3-matplotlib)" >&2
  return 1
}

run_layer() {
  heading "Layer $1 of SmolLM2-135M reading Alice in Wonderland (304 tokens, 9/3 heads of 64, fp16)"
  "$HEED" run --input "$CAPTURE" --prefix "layer$1." --causal --output "$OUT/layer$1.safetensors"
  "$HEED" check --input "$CAPTURE" --prefix "layer$1." --causal
}

bench() {
  heading "Causal attention with the heads of that model in fp32, beside plain attention"
  "$HEED" bench --materialized --causal --heads 9 --kv-heads 3 --d 64 --lengths "$LENGTHS" \
    --thread-counts "$(nproc)" --slices 3 --json "$OUT/demo.json"
}

if [[ ! -x "$HEED" ]]; then
  echo "demo: no heed tool at $HEED: build it, or name it by HEED_CLI" >&2
  exit 2
fi
python=$(plotting_python)
mkdir -p "$OUT"
for layer in "${LAYERS[@]}"; do run_layer "$layer"; done
bench
heading "Side by side"
"$python" examples/demo/table.py "$OUT/demo.json"
"$python" examples/demo/plot.py "$OUT/demo.json" "$OUT/demo.png"
heading "Written"
printf '%s\n' "$OUT"/layer*.safetensors "$OUT/demo.json" "$OUT/demo.png"
