// Row copies as the shaders rows_*.wgsl read them: divided into dispatches.
#ifndef HEED_WEBGPU_ROW_TABLE_H_
#define HEED_WEBGPU_ROW_TABLE_H_

#include <cstdint>
#include <vector>

#include "webgpu/row_copies.h"

namespace heed::webgpu {

// One dispatch: a window of the tensor's buffer, and the table.
struct RowDispatch {
  std::uint64_t begin_bytes = 0, size_bytes = 0;  // multiples of 256 and of 4; size is not 0
  std::vector<std::uint32_t> table;
  std::uint32_t num_workgroups = 0;
};

// The buffer that all rows are in: what address its first byte stands for.
struct RowHome {
  const void* address = nullptr;
  std::uint64_t size_bytes = 0;
};

// No window, no table and no dispatch is larger than a device bears.
std::vector<RowDispatch> DivideRows(const RowCopies& rows, const RowHome& home,
                                    std::uint64_t max_binding_bytes);

// Whether every word of the packed rows is a whole word of the tensor, so that no two rows share
// one. Where not, halves of words are written.
bool HasWholeWords(const RowCopies& rows, const RowHome& home);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_ROW_TABLE_H_
