# shellcheck shell=bash
# ./dev lint

readonly TIDY_MAX_FILES=12

# Every .cc that the release build compiles, without the tests (their macros drown the checks).
# Those of Arm targets are not compiled here.
tidy_candidates() {
  find src tools examples -name '*.cc' ! -path '*/targets/*neon*' ! -path '*/targets/*sve*' | sort
}

# Candidates that differ from the main line; in an unchanged tree, those of the last commit.
changed_candidates() {
  local base
  base=$(git merge-base HEAD origin/HEAD 2>/dev/null || true)
  if [[ -z "$base" || "$base" == "$(git rev-parse HEAD)" ]]; then base=HEAD~1; fi
  { git diff --name-only --diff-filter=d "$base" 2>/dev/null || true; } | sort -u |
    comm -12 - <(tidy_candidates) | awk -v most="$TIDY_MAX_FILES" 'NR <= most'
}

# tidy_one FILE: findings go to stdout. On stderr clang-tidy counts what it did not show, which is
# noise unless it failed: then its own errors, such as a missing compile command, stand there too.
# A configuration that it cannot read makes it go on with other checks and succeed.
tidy_one() {
  local messages status=0
  messages="$(mktemp)"
  # The compile commands are those of g++, with warnings that clang does not know.
  clang-tidy --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
    -p build/release "$1" 2>"$messages" || status=1
  if grep -q 'Error parsing' "$messages"; then status=1; fi
  [[ "$status" == 0 ]] || { echo "clang-tidy failed on $1:" && cat "$messages"; } >&2
  rm -f "$messages"
  return "$status"
}

# tidy_files FILE...
tidy_files() {
  [[ $# -gt 0 ]] || { echo "clang-tidy: no file to look at"; return 0; }
  configure_preset release || return 1
  export -f tidy_one
  printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" bash -c "tidy_one \"\$1\"" bash
}

tidy_all() {
  mapfile -t files < <(tidy_candidates)
  tidy_files "${files[@]}"
}

tidy_changed() {
  mapfile -t files < <(changed_candidates)
  tidy_files "${files[@]}"
}

# check NAME COMMAND...
check() {
  local name="$1"
  shift
  if "$@"; then echo "lint: $name: ok"; else
    echo "lint: $name: FAILED" >&2
    failed_checks+=("$name")
  fi
}

check_format() {
  cxx_files | xargs -0 clang-format --dry-run -Werror
}

check_shell() {
  find dev .ci scripts examples tests -type f \( -name dev -o -name run -o -name '*.sh' \) -print0 |
    xargs -0 shellcheck
}

run_lint() {
  need_packages "${LINT_PACKAGES[@]}"
  local failed_checks=()
  check format check_format
  check layers python3 scripts/check_layers.py
  check text python3 scripts/check_text.py
  check tables python3 scripts/readme_tables.py --check
  check shell check_shell
  check clang-tidy tidy_changed
  [[ ${#failed_checks[@]} -eq 0 ]]
}
