#include "core/tune/table.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "core/log.h"
#include "core/os/os.h"
#include "core/sha256.h"
#include "core/status.h"
#include "core/tune/store.h"

namespace heed::core::tune {
namespace {

const KernelRow* FindRow(const std::string& id, const ProblemClass& problem) {
  for (const KernelRow* row : KernelRowsOf(problem.op)) {
    if (id == row->id) return row;
  }
  return nullptr;
}

// Tables are few and small and are replaced by heed_tune and heed_tune_clear only: old ones are
// kept, so that a call may hold a pointer without counting.
struct Tables {
  std::mutex mutex;
  std::vector<std::unique_ptr<const DeviceTable>> all;
  std::array<std::atomic<const DeviceTable*>, kNumSlots> by_slot = {};  // null = not read yet
};

// Never destroyed: other threads may still call while the process ends.
Tables& AllTables() {
  static Tables& tables = *new Tables;
  return tables;
}

bool IsOff() {
  const std::string value = os::Environment("HEED_TUNE");
  if (value == "off") return true;
  static std::atomic<bool> has_complained = false;
  if (!value.empty() && value != "on" && !has_complained.exchange(true)) {
    Log(LogLevel::kWarn,
        Format("HEED_TUNE = %.64s: must be on or off; taken for on", value.c_str()));
  }
  return false;
}

const DeviceTable* Read(std::size_t slot, const std::function<Identity()>& identify) {
  Tables& tables = AllTables();
  const std::lock_guard<std::mutex> lock(tables.mutex);
  const DeviceTable* table = tables.by_slot[slot].load(std::memory_order_acquire);
  if (table != nullptr) return table;
  const std::vector<Record> records = ReadRecords();
  const Identity identity = records.empty() ? Identity{} : identify();
  tables.all.push_back(
      std::make_unique<const DeviceTable>(records, identity.device, identity.library));
  table = tables.all.back().get();
  tables.by_slot[slot].store(table, std::memory_order_release);
  return table;
}

}  // namespace

DeviceTable::DeviceTable(const std::vector<Record>& records, const std::string& device,
                         const std::string& library) {
  for (const Record& record : records) {
    if (record.device != OneLine(device) || record.library != library) continue;
    const TunedRow tuned = {FindRow(record.kernel_id, record.problem),
                            FindRow(record.default_id, record.problem), record.kernel_seconds,
                            record.default_seconds};
    if (tuned.row == nullptr || tuned.default_row == nullptr) {
      Log(LogLevel::kWarn,
          Format("tuning: %.160s: no such %s row; ignored",
                 (tuned.row == nullptr ? record.kernel_id : record.default_id).c_str(),
                 OpName(record.problem.op)));
      continue;
    }
    rows_.emplace(record.problem, tuned);
  }
}

const TunedRow* DeviceTable::Find(const ProblemClass& problem) const {
  const auto found = rows_.find(problem);
  return found == rows_.end() ? nullptr : &found->second;
}

const DeviceTable* TableOf(std::size_t slot, const std::function<Identity()>& identify) {
  if (slot >= kNumSlots) return nullptr;
  const DeviceTable* table = AllTables().by_slot[slot].load(std::memory_order_acquire);
  if (table != nullptr && table->empty()) return nullptr;
  if (IsOff()) return nullptr;
  if (table == nullptr) table = Read(slot, identify);
  return table->empty() ? nullptr : table;
}

void ForgetTables() {
  Tables& tables = AllTables();
  const std::lock_guard<std::mutex> lock(tables.mutex);
  for (auto& table : tables.by_slot) table.store(nullptr, std::memory_order_release);
}

std::string LibraryText(const std::string& kernels_digest) {
  Sha256 sum;
  for (const KernelRow& row : KernelRows()) {
    sum.AddField(row.id);
    for (const std::int64_t number :
         {row.max_head_dim, std::int64_t{row.tile_q_rows}, std::int64_t{row.tile_kv_rows},
          std::int64_t{row.rank}, std::int64_t{row.cuda.num_warps},
          std::int64_t{row.cuda.kv_groups}, std::int64_t{row.cuda.num_stages},
          std::int64_t{row.cuda.variant}, static_cast<std::int64_t>(row.cuda.use)}) {
      sum.AddField(std::to_string(number));
    }
  }
  sum.AddField(kernels_digest);
  return Format("%d.%d.%d ", HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH) +
         Hex(sum.Finish());
}

}  // namespace heed::core::tune
