# shellcheck shell=bash
# Shared by the packaging tests. Each runs in its own temporary folder.
set -euo pipefail

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# install_heed BUILD_FOLDER: a stripped installation in $work/prefix, moved once to prove that
# nothing in it remembers where it was installed.
install_heed() {
  cmake --install "$1" --prefix "$work/first" --strip >/dev/null
  mv "$work/first" "$work/prefix"
  libdir="$(dirname "$(find "$work/prefix" -name libheed.so)")"
  export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"
}

# compile_and_run COMPILER SOURCE FLAG...: against the installation, through pkg-config.
compile_and_run() {
  local compiler="$1" source="$2" flags=()
  shift 2
  read -ra flags <<<"$(pkg-config --cflags --libs heed)"
  "$compiler" "$@" -Wall -Wextra -Wpedantic -Werror "$source" "${flags[@]}" -lm \
    -o "$work/program" || fail "$source does not compile"
  "$work/program" || fail "$source does not run"
}
