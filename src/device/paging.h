// Where a token of a paged KV cache lives.
#ifndef HEED_DEVICE_PAGING_H_
#define HEED_DEVICE_PAGING_H_

#include "device/prelude.h"

namespace heed::device {

struct TokenSlot {
  i64 table_column = 0;  // index into the sequence's row of the block table
  i64 slot = 0;          // token within the page
};

// Requires: token >= 0, page_slots > 0.
HEED_DEVICE TokenSlot SlotOfToken(i64 token, i64 page_slots) {
  return TokenSlot{token / page_slots, token % page_slots};
}

// Table columns a sequence of kv_len tokens reads; columns past them are never read.
HEED_DEVICE i64 NumPagesNeeded(i64 kv_len, i64 page_slots) { return CeilDiv(kv_len, page_slots); }

}  // namespace heed::device

#endif  // HEED_DEVICE_PAGING_H_
