#!/usr/bin/env bash
# flash_attention_v2_test.sh BUILD_FOLDER CXX: the installed flash_attention_v2.h in a program that
# links libheed and nothing of the CUDA toolkit, without the toolkit's headers and, where there are
# some, with them.
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/packaging/common.sh
source "$here/common.sh"
install_heed "$1"
cxx="$2"
program="$here/consumer/flash_attention_v2.cc"

[[ -f "$work/prefix/include/flash_attention_v2.h" ]] || fail "flash_attention_v2.h is not installed"

# The compiler's own folders, but for those that hold the toolkit.
mapfile -t folders < <("$cxx" -E -x c++ -v - </dev/null 2>&1 |
  sed -n '/^#include <\.\.\.>/,/^End of search list/s/^ //p')
[[ ${#folders[@]} -gt 0 ]] || fail "could not read the include folders of $cxx"
without_toolkit=(-nostdinc -nostdinc++)
for folder in "${folders[@]}"; do
  [[ -e "$folder/cuda_runtime.h" || -e "$folder/cuda_fp16.h" ]] ||
    without_toolkit+=(-isystem "$folder")
done
for standard in c++11 c++20; do
  compile_and_run "$cxx" "$program" "-std=$standard" "${without_toolkit[@]}"
done

for folder in "${folders[@]}" /usr/local/cuda/include /opt/cuda/include; do
  if [[ -e "$folder/cuda_runtime.h" && -e "$folder/cuda_fp16.h" ]]; then
    compile_and_run "$cxx" "$program" -std=c++17 -DEXPECT_TOOLKIT -isystem "$folder"
    echo "with the toolkit of $folder"
    exit
  fi
done
echo "NOT TESTED: no toolkit headers on this machine"
