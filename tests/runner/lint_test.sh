#!/usr/bin/env bash
# lint_test.sh: a clang-tidy that fails is a failure of the lint, with its own words.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/dev/lint.sh
source scripts/dev/lint.sh
configure_preset() { :; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PATH="$work:$PATH"

# plant STATUS [WORDS]: a clang-tidy that writes to both streams and ends with STATUS. The file is
# its last argument.
plant() {
  cat >"$work/clang-tidy" <<SCRIPT
#!/bin/sh
for file in "\$@"; do :; done
echo "finding in \$file"
echo "${2:-own words}" >&2
exit $1
SCRIPT
  chmod +x "$work/clang-tidy"
}

# expect STATUS OUT ERR: what tidy_files does with two files.
expect() {
  local status=0
  tidy_files a.cc b.cc >"$work/out" 2>"$work/err" || status=1
  if [[ "$status" != "$1" || "$(sort "$work/out")" != "$2" || "$(sort "$work/err")" != "$3" ]]; then
    echo "FAILED: status $status (expected $1), stdout '$(cat "$work/out")' (expected '$2')," \
      "stderr '$(cat "$work/err")' (expected '$3')" >&2
    exit 1
  fi
}

findings=$'finding in a.cc\nfinding in b.cc'
plant 0
expect 0 "$findings" ""
plant 1
expect 1 "$findings" \
  $'clang-tidy failed on a.cc:\nclang-tidy failed on b.cc:\nown words\nown words'
# A configuration that clang-tidy cannot read does not change its status.
plant 0 'Error parsing .clang-tidy: unknown key'
expect 1 "$findings" "$(printf 'Error parsing .clang-tidy: unknown key\n%.0s' 1 2)
$(printf 'clang-tidy failed on %s.cc:\n' a b)"
