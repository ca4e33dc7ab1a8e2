// The block table of paged keys and values.
#ifndef HEED_CORE_BUILD_PAGING_H_
#define HEED_CORE_BUILD_PAGING_H_

#include "core/build/operands.h"

namespace heed::core {

// Fills problem->block_table. Requires: problem->shape.batch is set.
Status ReadBlockTable(const ForwardArgs& args, const Operands& operands, TensorReader* reader,
                      ForwardProblem* problem);

// Most tokens that one row of the table can name, at most the int64 maximum.
std::int64_t CapacityRows(const BlockTableView& table);

// Every entry that a sequence needs names a page of `pool`; entries past the need are not read.
// Requires: host arrays, lengths within CapacityRows.
Status CheckBlockTableEntries(const BlockTableView& table, const IndexView& seqused_kv,
                              std::int64_t batch, const TensorInfo& pool);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_PAGING_H_
