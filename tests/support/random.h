// Seeded random numbers for tests: a stream per (seed, purpose), so that one feature of a case can
// be removed without changing the values of the others.
#ifndef HEED_TESTS_SUPPORT_RANDOM_H_
#define HEED_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace heed::test {

class Random {
 public:
  Random(std::uint64_t seed, std::string_view purpose);

  std::uint64_t Bits();
  double Uniform();                        // [0, 1)
  double Normal();                         // N(0, 1)
  std::int64_t Below(std::int64_t count);  // [0, count), count > 0
  bool Chance(double probability);

  template <class T>
  T Pick(std::initializer_list<T> items) {
    return items.begin()[Below(static_cast<std::int64_t>(items.size()))];
  }
  template <class T>
  T Pick(const std::vector<T>& items) {
    return items[Below(static_cast<std::int64_t>(items.size()))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_RANDOM_H_
