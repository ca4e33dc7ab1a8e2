#!/usr/bin/env bash
# required_test.sh SOURCE_FOLDER GTEST COMMAND...: without an adapter a test of this backend is
# skipped, and fails where HEED_REQUIRE_WEBGPU=1. `./dev test` sets that and leaves none out.
set -euo pipefail
source_folder="$1" gtest="$2"
shift 2
export HEED_WEBGPU_LIBRARY=/nonexistent/libwgpu_native.so

fail() {
  echo "required_test: $1"
  exit 1
}

output="$(env -u HEED_REQUIRE_WEBGPU "$gtest" 2>&1)" || fail "not skipped: $output"
grep -q '\[  SKIPPED \]' <<<"$output" || fail "neither skipped nor failed: $output"

for command in "$gtest" "$@"; do
  status=0
  # Commands may be a shell script with its arguments.
  # shellcheck disable=SC2086
  output="$(HEED_REQUIRE_WEBGPU=1 $command 2>&1)" || status=$?
  [[ "$status" -eq 1 ]] || fail "$command: status $status without an adapter: $output"
done

# shellcheck source=scripts/dev/test.sh
source "$source_folder/scripts/dev/test.sh"
# In place of the program, says which labels it is not to run.
ctest() {
  while [[ $# -gt 0 && "$1" != --label-exclude ]]; do shift; done
  echo "$2"
}
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
excluded="$(EXCLUDED_LABELS='' run_ctest "$work")"
grep -Eq "$excluded" <<<gpu || fail "./dev test runs what needs a GPU: '$excluded'"
grep -Eq "$excluded" <<<webgpu && fail "./dev test leaves these tests out: '$excluded'"

# shellcheck source=scripts/dev/webgpu.sh
source "$source_folder/scripts/dev/webgpu.sh"
# shellcheck disable=SC2034  # read by with_webgpu
webgpu_library=/nonexistent/libwgpu_native.so
[[ "$(with_webgpu printenv HEED_REQUIRE_WEBGPU)" == 1 ]] || fail "./dev does not ask for an adapter"
with_webgpu "$gtest" >/dev/null 2>&1 && fail "./dev test would pass without an adapter"
echo "required_test: ok"
