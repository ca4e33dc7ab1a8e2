// heed_tune, heed_tune_describe, heed_tune_clear.
#include <algorithm>
#include <mutex>

#include "api/boundary.h"
#include "api/facts.h"
#include "api/text.h"
#include "api/tune_measure.h"
#include "core/abi_struct.h"
#include "core/log.h"
#include "core/tune/store.h"
#include "core/tune/table.h"
#include "cuda/backend.h"

namespace heed::api {
namespace {

using core::Format;
using core::Status;
using core::tune::Record;

struct TuneOrder {
  TuneEffort effort;
  heed_toggle_t dry_run = HEED_OFF;
  heed_tune_report_t report = nullptr;
  void* report_context = nullptr;
};

Status ReadOptions(const heed_tune_options_t* source, TuneOrder* order) {
  heed_tune_options_t options;
  HEED_RETURN_IF_ERROR(core::ReadStruct("options", source, &options));
  HEED_RETURN_IF_ERROR(
      core::CheckEnum("options.dry_run", core::RawValue(options.dry_run), HEED_ON));
  constexpr std::int32_t kMostRounds = 1000;
  constexpr double kLongestSliceSeconds = 60.0;
  if (options.num_rounds < 0 || options.num_rounds > kMostRounds) {
    return core::InvalidArgument(Format("options.num_rounds = %d: must be from 0 (7 rounds) to %d",
                                        options.num_rounds, kMostRounds));
  }
  if (!(options.slice_seconds >= 0.0 && options.slice_seconds <= kLongestSliceSeconds)) {
    return core::InvalidArgument(
        Format("options.slice_seconds = %g: must be from 0 (0.01 seconds) to %g",
               options.slice_seconds, kLongestSliceSeconds));
  }
  if (options.report == nullptr && options.report_context != nullptr) {
    return core::InvalidArgument("options.report = NULL: options.report_context is set");
  }
  if (options.num_rounds > 0) order->effort.num_rounds = options.num_rounds;
  if (options.slice_seconds > 0.0) order->effort.slice_seconds = options.slice_seconds;
  order->dry_run = options.dry_run;
  order->report = options.report;
  order->report_context = options.report_context;
  return {};
}

void Report(const TuneOrder& order, const std::vector<MeasuredRow>& rows) {
  for (const MeasuredRow& measured : rows) {
    if (measured.verdict == HEED_TUNE_REFUSED) {
      core::Log(core::LogLevel::kWarn,
                Format("tuning: %s: %s", measured.row->id, measured.reason.c_str()));
    }
    if (order.report == nullptr) continue;
    const bool is_refused = measured.verdict == HEED_TUNE_REFUSED;
    const heed_tune_row_t row = {sizeof(heed_tune_row_t),
                                 measured.row->id,
                                 measured.verdict,
                                 measured.is_chosen ? HEED_ON : HEED_OFF,
                                 measured.timing.median_seconds,
                                 is_refused ? 0.0 : measured.timing.ratio,
                                 measured.timing.spread,
                                 measured.reason.c_str()};
    order.report(order.report_context, &row);
  }
}

Status Store(const TuneCall& call, const std::vector<MeasuredRow>& rows) {
  const auto chosen =
      std::find_if(rows.begin(), rows.end(), [](const MeasuredRow& row) { return row.is_chosen; });
  core::tune::Identity identity;
  HEED_RETURN_IF_ERROR(IdentifyDevice(call.exec(), &identity));
  Record record;
  record.device = identity.device;
  record.library = identity.library;
  record.problem = call.problem_class();
  record.kernel_id = chosen->row->id;
  record.default_id = rows.front().row->id;
  record.kernel_seconds = chosen->timing.median_seconds;
  record.default_seconds = rows.front().timing.median_seconds;
  HEED_RETURN_IF_ERROR(core::tune::WriteRecord(record));
  core::tune::ForgetTables();
  return {};
}

Status Tune(std::int32_t op, const void* args, const heed_tune_options_t* options) {
  TuneOrder order;
  HEED_RETURN_IF_ERROR(ReadOptions(options, &order));
  // Two measurements at once would see each other.
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  TuneCall call;
  HEED_RETURN_IF_ERROR(call.Read(op, args));
  // Before the work: a choice that cannot be stored should not cost it.
  if (order.dry_run == HEED_OFF) HEED_RETURN_IF_ERROR(core::tune::CheckWritable());
  HEED_RETURN_IF_ERROR(call.Start());
  std::vector<MeasuredRow> rows;
  HEED_RETURN_IF_ERROR(MeasureRows(&call, order.effort, &rows));
  if (order.dry_run == HEED_OFF) HEED_RETURN_IF_ERROR(Store(call, rows));
  Report(order, rows);
  return {};
}

// A string of JSON: names of devices and rows are printable ASCII.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

bool IsOfThisLibrary(const Record& record) {
  const bool is_cuda = record.device.starts_with("cuda: ");
  return record.library == core::tune::LibraryText(is_cuda ? cuda::KernelsDigest() : "");
}

std::string RecordText(const Record& record) {
  constexpr double kMicroseconds = 1e6;
  return Format("%s\n  %s\n  %s: %.4g us; default %s: %.4g us%s\n", record.device.c_str(),
                core::tune::ClassText(record.problem).c_str(), record.kernel_id.c_str(),
                kMicroseconds * record.kernel_seconds, record.default_id.c_str(),
                kMicroseconds * record.default_seconds,
                IsOfThisLibrary(record) ? "" : "\n  of another library: not used");
}

std::string RecordJson(const Record& record) {
  return "{\"device\": " + Quoted(record.device) +
         ", \"problem\": " + Quoted(core::tune::ClassText(record.problem)) +
         ", \"kernel\": " + Quoted(record.kernel_id) +
         Format(", \"kernel_seconds\": %.6g", record.kernel_seconds) +
         ", \"default\": " + Quoted(record.default_id) +
         Format(", \"default_seconds\": %.6g", record.default_seconds) +
         ", \"library\": " + Quoted(record.library) +
         ", \"made_for_this_library\": " + (IsOfThisLibrary(record) ? "true" : "false") + "}";
}

Status Describe(std::int32_t format, const TextBuffer& buffer) {
  HEED_RETURN_IF_ERROR(core::CheckEnum("format", format, HEED_INFO_JSON));
  HEED_RETURN_IF_ERROR(CheckTextBuffer(buffer));
  std::string folder;
  HEED_RETURN_IF_ERROR(core::tune::FindFolder(&folder));
  const std::vector<Record> records = core::tune::ReadRecords();
  const bool is_json = format == HEED_INFO_JSON;
  std::string text = is_json ? "{\"folder\": " + Quoted(folder) + ", \"choices\": [" : "";
  for (const Record& record : records) {
    if (is_json && &record != records.data()) text += ",\n";
    text += is_json ? RecordJson(record) : RecordText(record);
  }
  text += is_json ? "]}\n"
                  : Format("%zu choice%s in %s\n", records.size(), records.size() == 1 ? "" : "s",
                           folder.c_str());
  WriteText(text, buffer);
  return {};
}

Status Clear(std::int64_t* num_removed) {
  std::int64_t count = 0;
  Status status = core::tune::RemoveRecords(&count);
  core::tune::ForgetTables();
  if (num_removed != nullptr) *num_removed = count;
  return status;
}

}  // namespace
}  // namespace heed::api

using heed::api::AtBoundary;
using heed::core::RawValue;

extern "C" heed_status_t heed_tune(heed_op_t op, const void* args,
                                   const heed_tune_options_t* options) {
  return AtBoundary([&] { return heed::api::Tune(RawValue(op), args, options); });
}

extern "C" heed_status_t heed_tune_describe(heed_info_format_t format, char* text,
                                            size_t capacity_bytes, size_t* needed_bytes) {
  return AtBoundary([&] {
    return heed::api::Describe(RawValue(format), {text, capacity_bytes, needed_bytes});
  });
}

extern "C" heed_status_t heed_tune_clear(int64_t* num_removed) {
  return AtBoundary([&] { return heed::api::Clear(num_removed); });
}
