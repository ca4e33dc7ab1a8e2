// Decisions read from a fuzzer's input: every input means something, and an exhausted one reads 0.
#ifndef HEED_TESTS_FUZZ_BYTE_SOURCE_H_
#define HEED_TESTS_FUZZ_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace heed::fuzz {

class ByteSource {
 public:
  ByteSource(const std::uint8_t* data, std::size_t num_bytes)
      : data_(data), end_(data + num_bytes) {}

  std::uint8_t Byte() { return data_ < end_ ? *data_++ : std::uint8_t{0}; }
  // In [low, high]; high - low is at most 255.
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + Byte() % (high - low + 1);
  }
  bool OneIn(int n) { return Byte() % n == n - 1; }
  template <class T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Byte() % values.size()];
  }

 private:
  const std::uint8_t* data_;
  const std::uint8_t* end_;
};

}  // namespace heed::fuzz

#endif  // HEED_TESTS_FUZZ_BYTE_SOURCE_H_
