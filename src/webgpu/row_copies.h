// Rows of a tensor, and where they lie packed in a binding: what goes to a dispatch or comes from
// it, written down before it is copied, on the host or by the device.
#ifndef HEED_WEBGPU_ROW_COPIES_H_
#define HEED_WEBGPU_ROW_COPIES_H_

#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace heed::webgpu {

// Rows that two strides describe. Packed they follow each other, inner ones first.
struct RowCopy {
  void* address = nullptr;   // of the first element; of inputs that are constant none
  bool is_constant = false;  // the format's constant, and not what is at the other end
  std::int64_t num_outer = 1, num_inner = 1;
  std::int64_t outer_stride_elems = 0, inner_stride_elems = 0;
  std::int64_t row_elems = 0;  // the rest of a packed row is 0
  std::uint64_t first_word = 0;

  std::int64_t num_rows() const { return num_outer * num_inner; }
  // Of the first element of a row, from that of the first row.
  std::int64_t OffsetElems(std::int64_t row) const {
    return row / num_inner * outer_stride_elems + row % num_inner * inner_stride_elems;
  }
};

// All rows of one binding; none = the binding is filled otherwise.
struct RowCopies {
  core::DType dtype = core::DType::kInvalid;  // fp32, fp16 or bf16
  bool widens = false;                        // packed as fp32, a word each; for inputs only
  std::int64_t row_words = 0;                 // of a packed row
  std::int64_t elem_stride_elems = 1;         // other than 1 only where it widens
  std::uint32_t constant = 0;                 // a packed word
  std::uint64_t num_words = 0;                // of the binding
  std::vector<RowCopy> copies;

  bool present() const { return num_words != 0; }
  std::int64_t elems_per_word() const {
    return widens || core::DTypeBytes(dtype) == sizeof(std::uint32_t) ? 1 : 2;
  }
  // Appends rows behind the packed ones, and says where the first one is: a number of words.
  std::uint64_t Append(RowCopy copy);
};

// Between host tensors and packed words, by several threads where that pays. exec may be null.
void PackRows(const RowCopies& rows, const core::ExecOptions* exec, std::uint32_t* words);
void UnpackRows(const std::uint32_t* words, const core::ExecOptions* exec, const RowCopies& rows);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_ROW_COPIES_H_
