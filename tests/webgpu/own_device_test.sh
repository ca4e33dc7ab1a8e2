#!/usr/bin/env bash
# own_device_test.sh LIBHEED CC: compiles own_device.c with the headers that lie beside
# HEED_WEBGPU_LIBRARY and runs it. Without those it is skipped; HEED_REQUIRE_WEBGPU=1 makes that a
# failure.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
libheed="$1" cc="$2" library="${HEED_WEBGPU_LIBRARY:-}"
headers="$(dirname "$library")"
if [[ ! -f "$headers/webgpu.h" || ! -f "$headers/wgpu.h" ]]; then
  echo "own_device_test: no webgpu.h and wgpu.h beside HEED_WEBGPU_LIBRARY ('$library')"
  [[ "${HEED_REQUIRE_WEBGPU:-}" == 1 ]] && exit 1
  exit 77
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$cc" -std=c11 -O1 -Wall -Wextra -Werror -I"$here/../../include" -isystem "$headers" \
  "$here/own_device.c" "$libheed" "$library" -lm -ldl \
  -Wl,-rpath,"$(dirname "$libheed")" -Wl,-rpath,"$headers" -o "$work/own_device"
"$work/own_device" "$library"
