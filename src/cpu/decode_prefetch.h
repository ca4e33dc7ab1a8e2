// What to prefetch while a block of keys or values is computed.
#ifndef HEED_CPU_DECODE_PREFETCH_H_
#define HEED_CPU_DECODE_PREFETCH_H_

#include <cstdint>

#include "cpu/decode_keys.h"

namespace heed::cpu {

enum class RowKind : std::uint8_t { kKeys, kValues };

// The rows of this head's share of the next block's keys or values, in order of address, which
// hardware prefetchers follow. At most as many as the block has itself; what is over stays.
void LocateRowsAhead(const BlockKeys& block, const core::KvCacheView& cache, const void** rows);

// The same by lines, of interleaved rows. Always num_lines, as many as the block has itself; those
// that are over repeat a line that is there.
void LocateLines(const BlockKeys& block, RowKind kind, std::int64_t num_lines, const void** lines);

// Asks for this head's share of the next block's scales, which lie apart from the rows.
void PrefetchScales(const BlockKeys& block, const core::KvCacheView& cache);

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_PREFETCH_H_
