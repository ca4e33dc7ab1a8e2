#include "webgpu/row_table.h"

#include <algorithm>

#include "device/prelude.h"
#include "webgpu/device.h"

namespace heed::webgpu {
namespace {

// Words of shaders/rows.wgsl.
enum RowKind : std::uint32_t { kWords, kHalves, kWidenedFp16, kWidenedBf16 };
constexpr std::size_t kHeaderWords = 4, kRecordWords = 12;
// What one workgroup copies at most.
constexpr std::int64_t kWorkgroupWords = 4096;
// Of the offsets of storage bindings, on every device.
constexpr std::uint64_t kOffsetBytes = 256;

RowKind KindOf(const RowCopies& rows) {
  if (core::DTypeBytes(rows.dtype) == sizeof(std::uint32_t)) return kWords;
  if (!rows.widens) return kHalves;
  return rows.dtype == core::DType::kF16 ? kWidenedFp16 : kWidenedBf16;
}

// Some of the packed words of a copy, and the bytes of the buffer that they may touch.
struct Piece {
  const RowCopy* copy;
  std::int64_t first_word, num_words;
  std::uint64_t begin_bytes = 0, end_bytes = 0;
};

class Divider {
 public:
  Divider(const RowCopies& rows, const RowHome& home, std::uint64_t max_binding_bytes)
      : rows_(rows),
        home_(home),
        max_bytes_(max_binding_bytes),
        elem_bytes_(core::DTypeBytes(rows.dtype)),
        max_records_(std::min<std::size_t>(
            kMaxWorkgroups,
            (max_binding_bytes / sizeof(std::uint32_t) - kHeaderWords) / kRecordWords)) {}

  std::vector<RowDispatch> Run() {
    for (const RowCopy& copy : rows_.copies) {
      const std::int64_t num_words = copy.num_rows() * rows_.row_words;
      for (std::int64_t word = 0; word < num_words; word += kWorkgroupWords) {
        AddPiece(copy, word, std::min(kWorkgroupWords, num_words - word));
      }
    }
    // Else rows of each head in turn would go over all of a long buffer.
    if (home_.size_bytes > max_bytes_) {
      std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
        return a.begin_bytes < b.begin_bytes;
      });
    }
    for (const Piece& piece : pieces_) AddRecord(piece);
    Flush();
    return std::move(dispatches_);
  }

 private:
  std::uint64_t OffsetElems(const RowCopy& copy) const {
    const auto bytes = static_cast<std::uint64_t>(static_cast<const char*>(copy.address) -
                                                  static_cast<const char*>(home_.address));
    return bytes / elem_bytes_;
  }

  void Locate(Piece* piece) const {
    if (piece->copy->is_constant && piece->copy->address == nullptr) return;
    const RowCopy& copy = *piece->copy;
    const std::int64_t last_word = piece->first_word + piece->num_words - 1;
    const std::int64_t first_row = piece->first_word / rows_.row_words;
    const std::int64_t last_row = last_word / rows_.row_words;
    std::int64_t least = copy.OffsetElems(first_row), most = least;
    std::int64_t first_elem = 0, last_elem = copy.row_elems - 1;
    if (first_row == last_row) {
      first_elem = std::min(piece->first_word % rows_.row_words * rows_.elems_per_word(),
                            copy.row_elems - 1);
      last_elem =
          std::min((last_word % rows_.row_words + 1) * rows_.elems_per_word(), copy.row_elems) - 1;
    } else if (first_row / copy.num_inner == last_row / copy.num_inner) {
      most = copy.OffsetElems(last_row);
    } else {
      least = first_row / copy.num_inner * copy.outer_stride_elems;
      most = last_row / copy.num_inner * copy.outer_stride_elems +
             (copy.num_inner - 1) * copy.inner_stride_elems;
    }
    least += first_elem * rows_.elem_stride_elems;
    most += last_elem * rows_.elem_stride_elems;
    const std::uint64_t origin = OffsetElems(copy);
    piece->begin_bytes = (origin + static_cast<std::uint64_t>(least)) * elem_bytes_;
    piece->end_bytes = (origin + static_cast<std::uint64_t>(most) + 1) * elem_bytes_;
    piece->begin_bytes -= piece->begin_bytes % kOffsetBytes;
    piece->end_bytes =
        std::min(device::CeilDiv<std::uint64_t>(piece->end_bytes, 4) * 4, home_.size_bytes);
  }

  // Halves what one window does not hold: rows first, then words of a row.
  void AddPiece(const RowCopy& copy, std::int64_t first_word, std::int64_t num_words) {
    Piece piece = {&copy, first_word, num_words};
    Locate(&piece);
    if (piece.end_bytes - piece.begin_bytes <= max_bytes_ || num_words == 1) {
      pieces_.push_back(piece);
      return;
    }
    AddPiece(copy, first_word, num_words / 2);
    AddPiece(copy, first_word + num_words / 2, num_words - num_words / 2);
  }

  void AddRecord(const Piece& piece) {
    const bool is_placed = piece.end_bytes != 0;
    if (is_placed) {
      const std::uint64_t begin =
          has_window_ ? std::min(begin_bytes_, piece.begin_bytes) : piece.begin_bytes;
      const std::uint64_t end =
          has_window_ ? std::max(end_bytes_, piece.end_bytes) : piece.end_bytes;
      if (end - begin > max_bytes_) {
        Flush();
        return AddRecord(piece);
      }
      has_window_ = true;
      begin_bytes_ = begin;
      end_bytes_ = end;
    }
    records_.push_back(piece);
    if (records_.size() == max_records_) Flush();
  }

  void Flush() {
    if (records_.empty()) return;
    RowDispatch dispatch;
    dispatch.begin_bytes = has_window_ ? begin_bytes_ : 0;
    dispatch.size_bytes = has_window_ ? end_bytes_ - begin_bytes_ : sizeof(std::uint32_t);
    dispatch.num_workgroups = static_cast<std::uint32_t>(records_.size());
    const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    std::vector<std::uint32_t>& table = dispatch.table;
    table = {KindOf(rows_), word(rows_.row_words), word(rows_.elem_stride_elems), rows_.constant};
    table.reserve(kHeaderWords + records_.size() * kRecordWords);
    for (const Piece& piece : records_) {
      const RowCopy& copy = *piece.copy;
      // Below the window's begin where the piece is not the copy's first: the shader's sums wrap.
      const std::uint64_t origin =
          piece.end_bytes != 0 ? OffsetElems(copy) - dispatch.begin_bytes / elem_bytes_ : 0;
      const std::uint32_t record[kRecordWords] = {
          static_cast<std::uint32_t>(origin),
          static_cast<std::uint32_t>(copy.first_word) + word(piece.first_word),
          word(piece.first_word),
          word(piece.num_words),
          word(copy.num_inner),
          word(copy.outer_stride_elems),
          word(copy.inner_stride_elems),
          word(copy.row_elems),
          copy.is_constant ? 1u : 0u};
      table.insert(table.end(), std::begin(record), std::end(record));
    }
    dispatches_.push_back(std::move(dispatch));
    records_.clear();
    has_window_ = false;
  }

  const RowCopies& rows_;
  const RowHome& home_;
  std::uint64_t max_bytes_, elem_bytes_;
  std::size_t max_records_;
  std::vector<Piece> pieces_;
  std::vector<Piece> records_;  // of the next dispatch
  bool has_window_ = false;
  std::uint64_t begin_bytes_ = 0, end_bytes_ = 0;
  std::vector<RowDispatch> dispatches_;
};

}  // namespace

std::vector<RowDispatch> DivideRows(const RowCopies& rows, const RowHome& home,
                                    std::uint64_t max_binding_bytes) {
  return Divider(rows, home, max_binding_bytes).Run();
}

bool HasWholeWords(const RowCopies& rows, const RowHome& home) {
  if (KindOf(rows) == kWords) return true;
  return std::all_of(rows.copies.begin(), rows.copies.end(), [&](const RowCopy& copy) {
    const std::ptrdiff_t offset_bytes =
        static_cast<const char*>(copy.address) - static_cast<const char*>(home.address);
    return offset_bytes % 4 == 0 && copy.outer_stride_elems % 2 == 0 &&
           copy.inner_stride_elems % 2 == 0 && copy.row_elems % 2 == 0;
  });
}

}  // namespace heed::webgpu
