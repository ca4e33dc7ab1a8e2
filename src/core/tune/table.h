// Stored choices in memory, by device: what the planner looks a problem up in.
#ifndef HEED_CORE_TUNE_TABLE_H_
#define HEED_CORE_TUNE_TABLE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tune/record.h"

namespace heed::core::tune {

// A record whose rows exist in this library.
struct TunedRow {
  const KernelRow* row = nullptr;
  const KernelRow* default_row = nullptr;
  double row_seconds = 0.0;
  double default_seconds = 0.0;
};

class DeviceTable {
 public:
  // Those of `records` that were measured on this device with this library.
  DeviceTable(const std::vector<Record>& records, const std::string& device,
              const std::string& library);

  bool empty() const { return rows_.empty(); }
  // Null when the class was never tuned.
  const TunedRow* Find(const ProblemClass& problem) const;

 private:
  std::unordered_map<ProblemClass, TunedRow, HashOfClass> rows_;
};

// What records of a device are filed under.
struct Identity {
  std::string device;
  std::string library;
};

// Devices by number: 0 is the CPU, 1 + n CUDA device n. Those from kNumSlots on are never tuned.
inline constexpr std::size_t kNumSlots = 65;

// Read from disk by the first call that names the slot; later ones take one atomic load. Null when
// there is nothing for this device or HEED_TUNE=off. A table stays valid for the life of the
// process. identify is asked only where there are records.
const DeviceTable* TableOf(std::size_t slot, const std::function<Identity()>& identify);
// The next call reads the records again.
void ForgetTables();

// "<version> <digest>": of the rows and, on a device that compiles kernels, of `kernels_digest`.
std::string LibraryText(const std::string& kernels_digest);

}  // namespace heed::core::tune

#endif  // HEED_CORE_TUNE_TABLE_H_
