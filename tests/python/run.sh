#!/usr/bin/env bash
# Runs the tests of the Python package with an interpreter that has what they need.
# HEED_LIBRARY: the library to test. Options go to pytest.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
for python in "${HEED_PYTHON:-python3}" /usr/bin/python3; do
  if "$python" -c 'import hypothesis, numpy, pytest' 2>/dev/null; then
    # What was tuned on this machine must not choose the rows that tests run.
    export HEED_TUNE=off
    PYTHONPATH="$here/../../python" PYTHONDONTWRITEBYTECODE=1 exec "$python" -m pytest -q \
      -p no:cacheprovider --ignore="$here/frameworks" "$@" "$here"
  fi
done
echo "tests/python: no Python with numpy, pytest and hypothesis (python3-numpy, python3-pytest," \
  "python3-hypothesis)" >&2
exit 1
