# shellcheck shell=bash
# Debian packages per purpose, and their installation on demand.

# shellcheck disable=SC2034  # the lists are read by the scripts that source this one
BUILD_PACKAGES=(g++ cmake ninja-build pkg-config ccache libgtest-dev libcli11-dev
  nlohmann-json3-dev libdlpack-dev zlib1g-dev)
TEST_PACKAGES=("${BUILD_PACKAGES[@]}" python3 python3-numpy python3-pytest python3-hypothesis
  binutils clang libclang-rt-14-dev)
LINT_PACKAGES=("${BUILD_PACKAGES[@]}" python3 git clang clang-format clang-tidy shellcheck)
AARCH64_PACKAGES=(g++-aarch64-linux-gnu qemu-user)
FULL_PACKAGES=("${TEST_PACKAGES[@]}" "${LINT_PACKAGES[@]}" "${AARCH64_PACKAGES[@]}")
PLOT_PACKAGES=(python3 python3-matplotlib)

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

# need_packages PACKAGE...: installs those that are missing. Nothing is touched when none is.
need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "./dev: not a Debian system; make sure that these are installed: $*" >&2
    return
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "./dev: as root, run: apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "./dev: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
