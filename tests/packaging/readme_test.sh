#!/usr/bin/env bash
# readme_test.sh BUILD_FOLDER CC CXX: every C and C++ block of README.md is a whole program that
# compiles without warnings and succeeds.
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/packaging/common.sh
source "$here/common.sh"
install_heed "$1"

# extract LANGUAGE: writes the blocks of that language to $work/<n>.<language>.
extract() {
  awk -v language="$1" -v stem="$work/" '
    $0 == "```" language { block = stem (++count) "." language; next }
    /^```/ { block = ""; next }
    block != "" { print > block }' "$here/../../README.md"
  ls "$work"/*."$1"
}

for source in $(extract c); do compile_and_run "$2" "$source" -std=c99; done
for source in $(extract cpp); do compile_and_run "$3" "$source" -std=c++20; done
