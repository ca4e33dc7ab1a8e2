# shellcheck shell=bash
# Configuring and building presets (CMakePresets.json) into build/<preset>.

# configure_preset PRESET [OPTION...]
configure_preset() {
  local options=("${@:2}")
  # Sanitizers change what g++ believes of values and raise false alarms; the release build decides.
  if [[ -n "${CI:-}" && "$1" == release ]]; then options+=(-DHEED_WARNINGS_AS_ERRORS=ON); fi
  cmake --preset "$1" "${options[@]}" >/dev/null
}

# build_preset PRESET [TARGET...]
build_preset() {
  configure_preset "$1"
  cmake --build "build/$1" --parallel "$(nproc)" ${2:+--target "${@:2}"}
}

cli_path() {
  echo "build/$1/tools/heed/heed"
}

# C and C++ files of the project, separated by NUL.
cxx_files() {
  find . \( -path ./build -o -path ./out -o -path ./.git \) -prune -o -type f \
    \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cc' -o -name '*.cuh' \) -print0
}
