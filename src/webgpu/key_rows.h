// How rows of keys and values get into their bindings: as the tensors hold them, or from a cache
// whose format the shaders do not read.
#ifndef HEED_WEBGPU_KEY_ROWS_H_
#define HEED_WEBGPU_KEY_ROWS_H_

#include <cstdint>

#include "core/decode_problem.h"
#include "webgpu/unit.h"

namespace heed::webgpu {

// shaders/keys_*.wgsl: elements of the call's type, fp32, or 8-bit integers with scales.
enum class KeyStorage : std::uint8_t { kStored, kFp32, kInt8 };

// Which of the two.
enum class KeySide : std::uint8_t { kKey, kValue };

class KeyRows {
 public:
  // Tensors k and v. The problem lives longer.
  explicit KeyRows(const core::ForwardProblem& problem);
  // Caches. Of `problem` k and v are the rows of the caches, whatever they hold. Both live longer.
  KeyRows(const core::ForwardProblem& problem, const core::DecodeProblem& decode);

  KeyStorage storage() const { return storage_; }
  bool is_cache() const { return decode_ != nullptr; }
  // 32-bit words of a row, and of an element of its binding.
  std::int64_t RowWords(KeySide side) const;
  std::int64_t ElementWords() const;
  // Groups of 4 elements that share a scale; 1 where rows have none.
  std::int64_t GroupsPerScale(KeySide side) const;
  // target: RowWords of zeros.
  void Pack(KeySide side, const Unit& unit, std::int64_t key, std::uint32_t* target) const;

 private:
  const core::RowsView& View(KeySide side) const;
  std::int64_t HeadDim(KeySide side) const;
  const core::KvCacheView& Cache(KeySide side) const;
  std::int64_t NumScales(KeySide side) const;

  const core::ForwardProblem& problem_;
  const core::DecodeProblem* decode_ = nullptr;
  KeyStorage storage_ = KeyStorage::kStored;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_KEY_ROWS_H_
