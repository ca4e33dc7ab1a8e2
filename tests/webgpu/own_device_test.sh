#!/usr/bin/env bash
# own_device_test.sh LIBHEED CC: compiles own_device.c and own_buffers.c with the headers that lie
# beside HEED_WEBGPU_LIBRARY and runs them. Without those it is skipped; HEED_REQUIRE_WEBGPU=1 makes
# that a failure.
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
for program in own_device own_buffers; do
  "$cc" -std=c11 -O1 -Wall -Wextra -Werror -I"$here/../../include" -isystem "$headers" \
    "$here/$program.c" "$libheed" "$library" -lm -ldl \
    -Wl,-rpath,"$(dirname "$libheed")" -Wl,-rpath,"$headers" -o "$work/$program"
done
"$work/own_device" "$library"
HEED_LOG=debug "$work/own_buffers" "$library" 2> "$work/log" || { tail -n 50 "$work/log"; exit 1; }
# Between the marks calls ran, and read nothing back.
sed -n '/own_buffers: begin/,/own_buffers: end/p' "$work/log" > "$work/calls"
grep -q 'webgpu: forward' "$work/calls"
if grep 'read back' "$work/calls"; then
  echo "own_device_test: a call on own buffers read them back"
  exit 1
fi
grep -q 'webgpu: read back' "$work/log"
