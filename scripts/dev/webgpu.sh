# shellcheck shell=bash
# libwgpu_native and an adapter for the tests of the WebGPU backend.

# The version whose interface src/webgpu/interface.h declares.
readonly WGPU_PACKAGE="wgpu==0.32.0"
# A Vulkan driver that computes on the CPU, the loader that finds it, and what translates shaders.
readonly WEBGPU_PACKAGES=(mesa-vulkan-drivers libvulkan1 spirv-cross spirv-tools)
# Another such driver, of Debian's chromium and for any program.
readonly SWIFTSHADER_ICD=/usr/lib/chromium/vk_swiftshader_icd.json

# Sets webgpu_library to HEED_WEBGPU_LIBRARY or to PyPI's under build/. Without
# HEED_WEBGPU_ADAPTER=hardware the adapter in software comes, too.
need_webgpu() {
  webgpu_library="${HEED_WEBGPU_LIBRARY:-}"
  [[ "${HEED_WEBGPU_ADAPTER:-}" == hardware ]] || need_packages "${WEBGPU_PACKAGES[@]}"
  [[ -z "$webgpu_library" ]] || return 0
  local venv=build/webgpu
  if ! compgen -G "$venv/lib/*/site-packages/wgpu/resources/libwgpu_native*.so" >/dev/null; then
    need_packages python3-venv
    echo "./dev: installing $WGPU_PACKAGE under $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
      "$WGPU_PACKAGE"
  fi
  webgpu_library=$(find "$PWD/$venv" -name 'libwgpu_native*.so' | head -n 1)
  [[ -n "$webgpu_library" ]] ||
    { echo "./dev: $WGPU_PACKAGE brought no libwgpu_native" >&2; return 1; }
}

# with_webgpu COMMAND...: a missing adapter is a failure of the tests that need one. The variable at
# the end keeps a layer of Mesa's loader from looking for a display.
with_webgpu() {
  HEED_WEBGPU_LIBRARY="$webgpu_library" HEED_REQUIRE_WEBGPU=1 \
    HEED_WEBGPU_ADAPTER="${HEED_WEBGPU_ADAPTER:-software}" NODEVICE_SELECT=1 "$@"
}

# The pages of web/, and the other compiler of WGSL; --all: its driver compiles every shader, too.
test_browser() {
  build_preset release heed_web && python3 web/browser_test.py build/release/web/site "$@"
}

# on_swiftshader COMMAND...: on that adapter and no other.
on_swiftshader() {
  HEED_WEBGPU_ADAPTER=SwiftShader with_webgpu \
    env VK_ICD_FILENAMES="$SWIFTSHADER_ICD" VK_DRIVER_FILES="$SWIFTSHADER_ICD" "$@"
}

# Conformance cases and a device of the caller's.
test_swiftshader() {
  local test
  for test in forward backward decode faults; do
    echo "=== webgpu_$test on SwiftShader"
    HEED_WEBGPU_CASES="${HEED_SWIFTSHADER_CASES:-40}" on_swiftshader \
      "build/release/tests/webgpu/webgpu_$test" --gtest_filter='*GeneratedCases:*Faults*' ||
      return 1
  done
  on_swiftshader bash tests/webgpu/own_device_test.sh "$PWD/build/release/src/libheed.so" cc
}

# A few minutes on two cores.
test_webgpu() {
  build_preset release heed webgpu_forward webgpu_backward webgpu_decode webgpu_faults \
    webgpu_unavailable_test webgpu_chunks_test webgpu_shaders_test webgpu_record \
    webgpu_spirv_recorder &&
    HEED_WEBGPU_CASES="${HEED_WEBGPU_CASES:-400}" HEED_WEBGPU_COST="${HEED_WEBGPU_COST:-1000000}" \
      with_webgpu run_ctest build/release --label-regex webgpu &&
    test_swiftshader
}
