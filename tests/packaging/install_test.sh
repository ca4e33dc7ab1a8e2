#!/usr/bin/env bash
# install_test.sh BUILD_FOLDER CC CXX: installs heed, and uses it through find_package and
# pkg-config, from C99 and C++20.
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/packaging/common.sh
source "$here/common.sh"
install_heed "$1"

cmp "$here/../../LICENSE" "$work/prefix/share/doc/heed/LICENSE" || fail "no licence installed"
for header in flash_attention_v2.h flash_attention_fused_v2.h flash_attention_v2_optimized.h \
  heed/heed.h heed/heed.hpp; do
  [[ -f "$work/prefix/include/$header" ]] || fail "$header is not installed"
done

CC="$2" CXX="$3" cmake -S "$here/consumer" -B "$work/consumer" \
  -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/consumer" >/dev/null
ctest --test-dir "$work/consumer" --output-on-failure --no-tests=error

compile_and_run "$2" "$here/consumer/consumer.c" -std=c99
compile_and_run "$3" "$here/consumer/consumer.cc" -std=c++20
compile_and_run "$2" "$here/consumer/flash_attention_v2_optimized.c" -std=c99
compile_and_run "$3" "$here/consumer/flash_attention_v2_optimized.c" -x c++ -std=c++11

if cmake -S "$here/consumer" -B "$work/nowhere" -DCMAKE_PREFIX_PATH="$work/empty" \
  -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF >/dev/null 2>&1; then
  fail "find_package(heed) succeeded without an installation"
fi
