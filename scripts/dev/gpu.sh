# shellcheck shell=bash
# NVRTC for tests that compile CUDA kernels, and ./dev gpu-test.

# The version that results are recorded with; any that the driver supports will do.
readonly NVRTC_PACKAGE="nvidia-cuda-nvrtc==13.0.88"

# True when the library would find NVRTC without help.
has_nvrtc() {
  [[ -n "${HEED_NVRTC:-}" ]] || compgen -G "/usr/local/cuda/lib64/libnvrtc.so.*" >/dev/null ||
    ldconfig -p 2>/dev/null | grep 'libnvrtc\.so' >/dev/null
}

# NVRTC needs neither a GPU nor a driver. Where there is none, PyPI's goes under build/.
need_nvrtc() {
  has_nvrtc && return
  local venv=build/nvrtc found
  if [[ ! -d "$venv/lib" ]]; then
    need_packages python3-venv
    echo "./dev: installing $NVRTC_PACKAGE under $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$NVRTC_PACKAGE"
  fi
  found=$(find "$venv" -name 'libnvrtc.so.*' | head -n 1)
  [[ -n "$found" ]] || { echo "./dev: $NVRTC_PACKAGE brought no libnvrtc" >&2; return 1; }
  export HEED_NVRTC="$PWD/$found"
}

# The programs of flash_attention_v2_optimized.h on a GPU: its tests, then its bench.
test_fa2_opt() {
  build_preset release gpu_session bench_flash_attention_v2_opt
  export HEED_FLASH_ATTENTION_V2_OPT=cuda
  build/release/tests/gpu/gpu_session --gtest_filter='FlashAttentionV2Opt*'
  build/release/examples/bench_flash_attention_v2_opt
}

# ./dev gpu-test fa2-opt, or ./dev gpu-test [OPTION...]: options of scripts/gpu_test.py
run_gpu_tests() {
  need_packages "${TEST_PACKAGES[@]}"
  need_nvrtc
  if [[ "${1:-}" == fa2-opt ]]; then
    test_fa2_opt
    return
  fi
  build_preset release
  local frameworks_python=python3
  if [[ " $* " == *" --python "* ]] && ! need_frameworks; then
    echo "./dev: going on with the system's Python; tests whose packages it lacks are skipped"
    frameworks_python=python3
  fi
  "$frameworks_python" scripts/gpu_test.py --build build/release "$@"
}
