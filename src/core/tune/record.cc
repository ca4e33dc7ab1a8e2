#include "core/tune/record.h"

#include <charconv>
#include <cmath>

#include "core/sha256.h"
#include "core/status.h"

namespace heed::core::tune {
namespace {

constexpr std::string_view kMagic = "heed tuning 1\n";
constexpr std::string_view kChecksum = "checksum: ";

void AddLine(std::string* text, std::string_view name, const std::string& value) {
  text->append(name).append(": ").append(OneLine(value)).append("\n");
}

bool TakeLine(std::string_view* text, std::string_view name, std::string* value) {
  const std::string prefix = std::string(name) + ": ";
  const std::size_t end = text->find('\n');
  if (end == std::string_view::npos || !text->starts_with(prefix)) return false;
  *value = text->substr(prefix.size(), end - prefix.size());
  text->remove_prefix(end + 1);
  return true;
}

bool TakeSeconds(std::string_view* text, std::string_view name, double* seconds) {
  std::string value;
  if (!TakeLine(text, name, &value)) return false;
  const char* end = value.data() + value.size();
  const std::from_chars_result parsed = std::from_chars(value.data(), end, *seconds);
  return parsed.ec == std::errc{} && parsed.ptr == end && std::isfinite(*seconds) && *seconds > 0.0;
}

std::string SecondsText(double seconds) { return Format("%.6g", seconds); }

}  // namespace

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string RecordFileName(const Record& record) {
  Sha256 sum;
  sum.AddField(OneLine(record.device));
  sum.AddField(record.library);
  sum.AddField(ClassText(record.problem));
  return Hex(sum.Finish()) + std::string(kRecordSuffix);
}

std::string EncodeRecord(const Record& record) {
  std::string text(kMagic);
  AddLine(&text, "device", record.device);
  AddLine(&text, "library", record.library);
  AddLine(&text, "problem", ClassText(record.problem));
  AddLine(&text, "kernel", record.kernel_id);
  AddLine(&text, "kernel_seconds", SecondsText(record.kernel_seconds));
  AddLine(&text, "default", record.default_id);
  AddLine(&text, "default_seconds", SecondsText(record.default_seconds));
  return text + std::string(kChecksum) + Hex(Sha256Of(text)) + "\n";
}

std::string DecodeRecord(std::string_view text, Record* record) {
  if (!text.starts_with("heed tuning ")) return "is not a tuning record";
  if (!text.starts_with(kMagic)) return "has another format";
  const std::size_t checksum_at = text.rfind(kChecksum);
  if (checksum_at == std::string_view::npos) return "is cut short";
  const std::string_view body = text.substr(0, checksum_at);
  if (text.substr(checksum_at) != std::string(kChecksum) + Hex(Sha256Of(body)) + "\n") {
    return "is damaged or cut short";
  }
  std::string_view rest = body.substr(kMagic.size());
  Record parsed;
  std::string problem;
  // The checksum holds, so only a writer's mistake can make these fail.
  if (!TakeLine(&rest, "device", &parsed.device) || !TakeLine(&rest, "library", &parsed.library) ||
      !TakeLine(&rest, "problem", &problem) || !ParseClass(problem, &parsed.problem) ||
      !TakeLine(&rest, "kernel", &parsed.kernel_id) ||
      !TakeSeconds(&rest, "kernel_seconds", &parsed.kernel_seconds) ||
      !TakeLine(&rest, "default", &parsed.default_id) ||
      !TakeSeconds(&rest, "default_seconds", &parsed.default_seconds) || !rest.empty()) {
    return "does not add up";
  }
  *record = std::move(parsed);
  return {};
}

}  // namespace heed::core::tune
