#!/usr/bin/env bash
# runner_test.sh PLANTED_BINARY: the functions behind ./dev test must report planted failures,
# crashes, skips and missing tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/dev/test.sh
source scripts/dev/test.sh

planted="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
folder="$work/release"
unset GTEST_OUTPUT GTEST_FILTER

# plant FILTER: a build folder whose only test runs these cases of the planted binary.
plant() {
  rm -rf "$folder"
  mkdir -p "$folder"
  cat >"$folder/CTestTestfile.cmake" <<CTEST
add_test(planted "$planted" "--gtest_filter=$1")
set_tests_properties(planted PROPERTIES ENVIRONMENT_MODIFICATION
  "GTEST_OUTPUT=set:xml:$folder/test-results/planted.xml")
CTEST
}

# expect STATUS LINE FILTER FLOOR: outcome of running the planted cases and summing them up.
expect() {
  local status=0 summary
  plant "$3"
  echo "release $4" >"$work/floors"
  run_ctest "$folder" >"$work/log" 2>&1 || status=1
  summary="$(python3 scripts/test_summary.py "$work/floors" "$folder")" || status=1
  if [[ "$status" != "$1" || "$summary" != *"$2" ]]; then
    cat "$work/log"
    echo "FAILED: $3: status $status (expected $1), summary '$summary' (expected '$2')" >&2
    exit 1
  fi
}

expect 0 "1 passed, 0 failed, 0 skipped" 'Planted.Passes' 1
expect 1 "1 passed, 1 failed, 0 skipped" 'Planted.Passes:Planted.Fails' 1
expect 1 "0 passed, 1 failed, 0 skipped" 'Planted.Crashes' 1
expect 0 "1 passed, 0 failed, 1 skipped" 'Planted.Passes:Planted.Skips' 1
expect 1 "1 passed, 0 failed, 0 skipped" 'Planted.Passes' 2
expect 1 "0 passed, 0 failed, 0 skipped" 'Planted.None' 1

# A skip names its test and its reason.
plant 'Planted.Skips'
run_ctest "$folder" >/dev/null 2>&1
echo "release 0" >"$work/floors"
summary="$(python3 scripts/test_summary.py "$work/floors" "$folder")"
[[ "$summary" == "SKIPPED release: Planted.Skips: "*"planted reason"* ]] || {
  echo "FAILED: the skip was not reported: $summary" >&2
  exit 1
}

# step and run_tests: a failing part is remembered, a passing one is not.
failed_steps=()
step planted_failure false >/dev/null
step planted_success true >/dev/null
[[ "${failed_steps[*]}" == planted_failure ]] || {
  echo "FAILED: step remembered '${failed_steps[*]}'" >&2
  exit 1
}
