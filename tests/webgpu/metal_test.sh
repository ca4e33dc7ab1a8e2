#!/usr/bin/env bash
# metal_test.sh RECORD_MAIN RECORDER: every shader, as wgpu-native's SPIR-V, is valid and translates
# to Metal's language. Skipped without spirv-cross, spirv-val or an adapter; HEED_REQUIRE_WEBGPU=1
# makes that a failure.
set -euo pipefail
record_main="$1" recorder="$2"

lack() {
  echo "metal_test: $1"
  [[ "${HEED_REQUIRE_WEBGPU:-}" == 1 ]] && exit 1
  exit 77
}

for tool in spirv-cross spirv-val; do
  command -v "$tool" >/dev/null || lack "$tool is not installed"
done
# An awk that exits early breaks ldconfig's pipe, which pipefail makes a failure.
loader="$(ldconfig -p | awk '$1 == "libvulkan.so.1" && !found { found = 1; print $NF }')"
[[ -n "$loader" ]] || lack "there is no libvulkan.so.1"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/lib" "$work/spirv"
cp "$recorder" "$work/lib/libvulkan.so.1"
HEED_REAL_VULKAN="$loader" LD_LIBRARY_PATH="$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  "$record_main" "$work/spirv" || lack "the shaders could not be recorded"

count=0
for binary in "$work"/spirv/*.spv; do
  label="$(basename "$binary" .spv)"
  spirv-val --target-env vulkan1.3 "$binary" ||
    { echo "metal_test: $label: SPIR-V is not valid"; exit 1; }
  spirv-cross --msl --msl-version 20300 --output "$work/shader.metal" "$binary" ||
    { echo "metal_test: $label: does not translate"; exit 1; }
  grep -q '^kernel void ' "$work/shader.metal" ||
    { echo "metal_test: $label: no kernel in the translation"; exit 1; }
  count=$((count + 1))
done
[[ "$count" -ge 100 ]] || { echo "metal_test: only $count shaders"; exit 1; }
echo "metal_test: $count shaders translate"
