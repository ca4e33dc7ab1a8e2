#!/usr/bin/env bash
# exports_test.sh LIBHEED: the library exports the functions of heed.h, the compatibility names, and
# nothing else.
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/packaging/common.sh
source "$here/common.sh"

compatibility='flash_attention_v2_opt_[a-z_]*|flash_attention_fused_forward(_packed)?'
compatibility+='|pack_[kv]_for_flash_attention|flash_aligned_(alloc|free)'

nm -D --defined-only "$1" | awk '{ print $3 }' | sort >"$work/exported"
sed -n 's/^HEED_API .*\b\(heed_[a-z_]*\)(.*/\1/p' "$here"/../../include/heed/heed{,_webgpu}.h |
  sort >"$work/declared"
[[ $(wc -l <"$work/declared") -ge 20 ]] || fail "could not read the declarations of heed.h"

missing="$(comm -13 "$work/exported" "$work/declared")"
[[ -z "$missing" ]] || fail "declared in heed.h but not exported: $missing"
extra="$(comm -23 "$work/exported" "$work/declared" | grep -vxE "$compatibility" || true)"
[[ -z "$extra" ]] || fail "exported but not part of the ABI: $extra"
