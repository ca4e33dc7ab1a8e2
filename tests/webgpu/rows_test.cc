// Row copies divided into dispatches, done as the shaders would do them, against the host's copies.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "webgpu/device.h"
#include "webgpu/row_table.h"

namespace heed::webgpu {
namespace {

constexpr std::size_t kHeaderWords = 4, kRecordWords = 12;

struct Element {
  std::uint64_t number;  // of 2 or 4 bytes in the buffer
  std::uint32_t packed_word;
  bool is_high;  // half of the packed word
};

// What shaders/rows.wgsl makes of a table, in the same arithmetic.
std::vector<Element> ElementsOf(const RowDispatch& dispatch, std::uint64_t elem_bytes,
                                std::uint32_t per_word) {
  std::vector<Element> elements;
  const std::uint32_t row_words = dispatch.table[1], elem_stride = dispatch.table[2];
  for (std::uint32_t at = 0; at < dispatch.num_workgroups; ++at) {
    const std::uint32_t* record = dispatch.table.data() + kHeaderWords + at * kRecordWords;
    for (std::uint32_t i = 0; i < record[3]; ++i) {
      const std::uint32_t word = record[2] + i;
      const std::uint32_t row = word / row_words;
      const std::uint32_t number = (word - row * row_words) * per_word;
      const std::uint32_t outer = row / record[4];
      const std::uint32_t element = record[0] + outer * record[5] +
                                    (row - outer * record[4]) * record[6] + number * elem_stride;
      for (std::uint32_t e = 0; e < per_word && number + e < record[7]; ++e) {
        EXPECT_LT((element + e) * elem_bytes, dispatch.size_bytes);
        elements.push_back(
            {dispatch.begin_bytes / elem_bytes + element + e, record[1] + i, e == 1});
      }
    }
  }
  return elements;
}

struct Layout {
  core::DType dtype;
  std::int64_t offset_elems, outer, inner, outer_stride, inner_stride, row_elems;
};

void CheckLayout(const Layout& layout, std::uint64_t max_binding_bytes) {
  const std::uint64_t elem_bytes = core::DTypeBytes(layout.dtype);
  const auto span =
      static_cast<std::uint64_t>(layout.offset_elems + (layout.outer - 1) * layout.outer_stride +
                                 (layout.inner - 1) * layout.inner_stride + layout.row_elems);
  std::vector<char> buffer((span * elem_bytes + 3) / 4 * 4);
  std::mt19937 random(1);
  for (char& byte : buffer) byte = static_cast<char>(random());
  RowCopies rows;
  rows.dtype = layout.dtype;
  rows.row_words = (layout.row_elems + rows.elems_per_word() - 1) / rows.elems_per_word() + 1;
  RowCopy copy;
  copy.address = buffer.data() + static_cast<std::uint64_t>(layout.offset_elems) * elem_bytes;
  copy.num_outer = layout.outer;
  copy.num_inner = layout.inner;
  copy.outer_stride_elems = layout.outer_stride;
  copy.inner_stride_elems = layout.inner_stride;
  copy.row_elems = layout.row_elems;
  rows.Append(copy);
  std::vector<std::uint32_t> expected(rows.num_words, 7), packed(rows.num_words);
  PackRows(rows, nullptr, expected.data());
  std::uint64_t num_elements = 0;
  for (const RowDispatch& dispatch :
       DivideRows(rows, {buffer.data(), buffer.size()}, max_binding_bytes)) {
    EXPECT_EQ(dispatch.begin_bytes % 256, 0u);
    EXPECT_EQ(dispatch.size_bytes % 4, 0u);
    EXPECT_LE(dispatch.size_bytes, max_binding_bytes);
    EXPECT_LE(dispatch.begin_bytes + dispatch.size_bytes, buffer.size());
    EXPECT_LE(dispatch.table.size() * 4, max_binding_bytes);
    EXPECT_EQ(dispatch.table.size(), kHeaderWords + dispatch.num_workgroups * kRecordWords);
    for (const Element& element :
         ElementsOf(dispatch, elem_bytes, static_cast<std::uint32_t>(rows.elems_per_word()))) {
      ASSERT_LE((element.number + 1) * elem_bytes, buffer.size());
      std::memcpy(reinterpret_cast<char*>(&packed[element.packed_word]) +
                      (element.is_high ? elem_bytes : 0),
                  buffer.data() + element.number * elem_bytes, elem_bytes);
      ++num_elements;
    }
  }
  EXPECT_EQ(num_elements,
            static_cast<std::uint64_t>(layout.outer * layout.inner * layout.row_elems));
  EXPECT_EQ(packed, expected);
  // And back: what is no row's stays.
  std::vector<char> target(buffer.size(), 'x'), by_rows = target;
  for (std::int64_t row = 0; row < copy.num_rows(); ++row) {
    const std::uint64_t at =
        static_cast<std::uint64_t>(layout.offset_elems + copy.OffsetElems(row)) * elem_bytes;
    std::memcpy(by_rows.data() + at, buffer.data() + at,
                static_cast<std::uint64_t>(layout.row_elems) * elem_bytes);
  }
  rows.copies[0].address = target.data() + (static_cast<char*>(copy.address) - buffer.data());
  UnpackRows(expected.data(), nullptr, rows);
  EXPECT_EQ(target, by_rows);
}

TEST(WebgpuRows, TablesSayWhatTheHostCopies) {
  const Layout layouts[] = {
      {core::DType::kF32, 0, 50, 3, 3 * 64, 64, 64},
      {core::DType::kF32, 5, 7, 2, 1000, 129, 40},
      {core::DType::kF16, 1, 33, 4, 5 * 7, 7, 5},
      {core::DType::kBF16, 2, 1, 300, 0, 130, 128},
      {core::DType::kF16, 3, 3, 5, 4099, 61, 61},
      {core::DType::kF32, 0, 3, 1, 70000, 1, 900},    // rows further apart than a small window
      {core::DType::kF32, 1, 2, 1, 50000, 1, 20000},  // and rows longer than that
      {core::DType::kF32, 0, 2, 4, 1, 300000, 1},     // lse
  };
  for (const Layout& layout : layouts) {
    for (const std::uint64_t max_bytes :
         {std::uint64_t{4096}, std::uint64_t{32768}, kMaxBindingBytes}) {
      SCOPED_TRACE(std::to_string(layout.outer_stride) + " at most " + std::to_string(max_bytes));
      CheckLayout(layout, max_bytes);
    }
  }
}

// Enough rows for several threads.
TEST(WebgpuRows, LargeCopies) {
  CheckLayout({core::DType::kF32, 3, 4096, 4, 4 * 64, 64, 64}, kMaxBindingBytes);
  CheckLayout({core::DType::kF16, 1, 4096, 4, 4 * 65, 65, 65}, kMaxBindingBytes);
}

// Buffers larger than a window: nothing is touched, so no memory is needed.
TEST(WebgpuRows, HugeBuffers) {
  constexpr std::uint64_t kBytes = std::uint64_t{40} << 30;
  char* base = reinterpret_cast<char*>(std::uintptr_t{1} << 60);
  RowCopies rows;
  rows.dtype = core::DType::kF32;
  rows.row_words = 64;
  for (std::int64_t head = 0; head < 4; ++head) {
    RowCopy copy;
    copy.address = base + head * 256;
    copy.num_inner = 1000;
    copy.inner_stride_elems = std::int64_t{10} << 20;  // 40 MiB
    copy.row_elems = 64;
    rows.Append(copy);
  }
  std::uint64_t num_records = 0;
  std::vector<bool> is_seen(rows.num_words);
  for (const RowDispatch& dispatch : DivideRows(rows, {base, kBytes}, kMaxBindingBytes)) {
    EXPECT_LE(dispatch.size_bytes, kMaxBindingBytes);
    EXPECT_LE(dispatch.begin_bytes + dispatch.size_bytes, kBytes);
    num_records += dispatch.num_workgroups;
    for (const Element& element : ElementsOf(dispatch, 4, 1)) {
      const std::uint64_t head = element.packed_word / 64000;
      const std::uint64_t row = element.packed_word / 64 % 1000;
      ASSERT_EQ(element.number, head * 64 + row * (10 << 20) + element.packed_word % 64);
      is_seen[element.packed_word] = true;
    }
  }
  EXPECT_EQ(is_seen, std::vector<bool>(rows.num_words, true));
  EXPECT_GE(num_records, 1000u);
}

TEST(WebgpuRows, HalvesShareWords) {
  char buffer[64];
  RowCopies rows;
  rows.dtype = core::DType::kF16;
  rows.row_words = 4;
  RowCopy copy;
  copy.address = buffer + 4;
  copy.num_inner = 3;
  copy.inner_stride_elems = 8;
  copy.row_elems = 8;
  rows.Append(copy);
  const RowHome home = {buffer, sizeof(buffer)};
  EXPECT_TRUE(HasWholeWords(rows, home));
  rows.copies[0].row_elems = 7;
  EXPECT_FALSE(HasWholeWords(rows, home));
  rows.copies[0].row_elems = 8;
  rows.copies[0].inner_stride_elems = 9;
  EXPECT_FALSE(HasWholeWords(rows, home));
  rows.copies[0].inner_stride_elems = 8;
  rows.copies[0].address = buffer + 2;
  EXPECT_FALSE(HasWholeWords(rows, home));
  rows.dtype = core::DType::kF32;
  EXPECT_TRUE(HasWholeWords(rows, home));
}

}  // namespace
}  // namespace heed::webgpu
