#!/usr/bin/env bash
# binary_test.sh LIBHEED: what the library needs from the system, and its size.
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/packaging/common.sh
source "$here/common.sh"

newest_allowed=2.35
max_stripped_bytes=$((5 * 1000 * 1000))

newest="$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)"
[[ -n "$newest" ]] || fail "found no glibc symbol at all"
[[ "$(printf '%s\n' "$newest" "$newest_allowed" | sort -V | tail -n 1)" == "$newest_allowed" ]] ||
  fail "needs glibc $newest, at most $newest_allowed"

needed="$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }')"
foreign="$(grep -vE '^(libc|libm|libpthread|libdl|ld-linux-x86-64)\.so\.' <<<"$needed" || true)"
[[ -z "$foreign" ]] || fail "needs libraries beyond the C library: $foreign"

strip -o "$work/stripped.so" "$1"
stripped_bytes="$(stat -c %s "$work/stripped.so")"
echo "glibc $newest, $stripped_bytes bytes stripped"
[[ "$stripped_bytes" -lt "$max_stripped_bytes" ]] || fail "larger than $max_stripped_bytes bytes"
