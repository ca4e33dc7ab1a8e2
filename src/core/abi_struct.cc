#include "core/abi_struct.h"

namespace heed::core {

Status CheckStructSize(const char* name, const void* source, const AbiVersion& version,
                       std::size_t* struct_bytes) {
  // Far above every struct of this header: a larger size is memory that was never initialised.
  constexpr std::size_t kPlausibleBytes = 4096;
  std::memcpy(struct_bytes, source, sizeof(*struct_bytes));
  if (*struct_bytes < version.first_release_bytes || *struct_bytes > kPlausibleBytes) {
    return InvalidArgument(Format(
        "%s.struct_size = %zu: must be sizeof(%s) = %zu; fill the struct with its INIT value", name,
        *struct_bytes, version.type_name, version.known_bytes));
  }
  const auto* bytes = static_cast<const unsigned char*>(source);
  for (std::size_t index = version.known_bytes; index < *struct_bytes; ++index) {
    if (bytes[index] == 0) continue;
    return InvalidArgument(Format(
        "%s.struct_size = %zu: byte %zu is set, but heed %d.%d.%d knows only the first %zu bytes",
        name, *struct_bytes, index, HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH,
        version.known_bytes));
  }
  return {};
}

Status RequirePointer(const char* name, const void* pointer) {
  if (pointer != nullptr) return {};
  return InvalidArgument(Format("%s = NULL: is required", name));
}

Status CheckEnum(const char* name, std::int32_t value, std::int32_t last) {
  if (value >= 0 && value <= last) return {};
  return InvalidArgument(Format("%s = %d: must be from 0 to %d", name, value, last));
}

}  // namespace heed::core
