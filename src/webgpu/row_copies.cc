#include "webgpu/row_copies.h"

#include <algorithm>
#include <cstring>

#include "device/float16.h"
#include "webgpu/crew.h"
#include "webgpu/element.h"

namespace heed::webgpu {
namespace {

// Some rows of a copy, for one thread at a time.
struct Piece {
  const RowCopy* copy;
  std::int64_t first_row, num_rows;
};

constexpr std::int64_t kPieceWords = std::int64_t{64} << 10;

std::vector<Piece> PiecesOf(const RowCopies& rows) {
  std::vector<Piece> pieces;
  const std::int64_t piece_rows = std::max<std::int64_t>(1, kPieceWords / rows.row_words);
  for (const RowCopy& copy : rows.copies) {
    for (std::int64_t row = 0; row < copy.num_rows(); row += piece_rows) {
      pieces.push_back({&copy, row, std::min(piece_rows, copy.num_rows() - row)});
    }
  }
  return pieces;
}

// visit(first byte of the tensor's row, first word of the packed one).
template <class Visit>
void VisitRows(const RowCopies& rows, const Piece& piece, Visit visit) {
  const RowCopy& copy = *piece.copy;
  const auto elem_bytes = static_cast<std::int64_t>(core::DTypeBytes(rows.dtype));
  std::uint64_t word =
      copy.first_word + static_cast<std::uint64_t>(piece.first_row * rows.row_words);
  std::int64_t outer = piece.first_row / copy.num_inner, inner = piece.first_row % copy.num_inner;
  for (std::int64_t row = 0; row < piece.num_rows; ++row) {
    const std::int64_t offset_elems =
        outer * copy.outer_stride_elems + inner * copy.inner_stride_elems;
    visit(static_cast<char*>(copy.address) + offset_elems * elem_bytes, word);
    word += static_cast<std::uint64_t>(rows.row_words);
    if (++inner == copy.num_inner) {
      inner = 0;
      ++outer;
    }
  }
}

void PackPiece(const RowCopies& rows, const Piece& piece, std::uint32_t* words) {
  const RowCopy& copy = *piece.copy;
  if (copy.is_constant) {
    const std::int64_t skipped = piece.first_row * rows.row_words;
    std::fill_n(words + copy.first_word + skipped, piece.num_rows * rows.row_words, rows.constant);
    return;
  }
  const std::size_t packed_bytes = static_cast<std::size_t>(rows.row_words) * sizeof(std::uint32_t);
  const std::size_t elem_bytes = rows.widens ? sizeof(std::uint32_t) : core::DTypeBytes(rows.dtype);
  const std::size_t used_bytes = static_cast<std::size_t>(copy.row_elems) * elem_bytes;
  VisitRows(rows, piece, [&](const char* elems, std::uint64_t word) {
    std::uint32_t* packed = words + word;
    if (rows.widens) {
      for (std::int64_t at = 0; at < copy.row_elems; ++at) {
        packed[at] =
            device::BitsOfFp32(LoadElement(elems, rows.dtype, at * rows.elem_stride_elems));
      }
    } else {
      std::memcpy(packed, elems, used_bytes);
    }
    if (used_bytes < packed_bytes) {
      std::memset(reinterpret_cast<char*>(packed) + used_bytes, 0, packed_bytes - used_bytes);
    }
  });
}

void UnpackPiece(const RowCopies& rows, const Piece& piece, const std::uint32_t* words) {
  const std::size_t elem_bytes = core::DTypeBytes(rows.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(piece.copy->row_elems) * elem_bytes;
  VisitRows(rows, piece, [&](char* elems, std::uint64_t word) {
    if (!piece.copy->is_constant) {
      std::memcpy(elems, words + word, row_bytes);
      return;
    }
    for (std::size_t at = 0; at < row_bytes; at += elem_bytes) {
      std::memcpy(elems + at, &rows.constant, elem_bytes);
    }
  });
}

}  // namespace

std::uint64_t RowCopies::Append(RowCopy copy) {
  copy.first_word = num_words;
  num_words += static_cast<std::uint64_t>(copy.num_rows() * row_words);
  copies.push_back(copy);
  return copy.first_word;
}

void PackRows(const RowCopies& rows, const core::ExecOptions* exec, std::uint32_t* words) {
  const std::vector<Piece> pieces = PiecesOf(rows);
  Crew crew(static_cast<std::int64_t>(pieces.size()),
            [&](std::int64_t at) { PackPiece(rows, pieces[static_cast<std::size_t>(at)], words); });
  crew.Run(exec, static_cast<std::int64_t>(rows.num_words));
}

void UnpackRows(const std::uint32_t* words, const core::ExecOptions* exec, const RowCopies& rows) {
  const std::vector<Piece> pieces = PiecesOf(rows);
  Crew crew(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t at) {
    UnpackPiece(rows, pieces[static_cast<std::size_t>(at)], words);
  });
  crew.Run(exec, static_cast<std::int64_t>(rows.num_words));
}

}  // namespace heed::webgpu
