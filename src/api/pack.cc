// heed_pack_build, heed_pack_describe, heed_pack_verify.
#include "api/boundary.h"
#include "api/text.h"
#include "core/abi_struct.h"
#include "cuda/packs.h"

namespace heed::api {
namespace {

using core::Status;

Status RequirePath(const char* name, const char* path) {
  if (path == nullptr) return core::RequirePointer(name, path);
  return path[0] != '\0' ? Status()
                         : core::InvalidArgument(core::Format("%s = \"\": names no file", name));
}

Status Build(const heed_pack_args_t* source) {
  heed_pack_args_t args = HEED_PACK_ARGS_INIT;
  HEED_RETURN_IF_ERROR(core::ReadRequiredStruct("args", source, &args));
  HEED_RETURN_IF_ERROR(RequirePath("path", args.path));
  if (args.num_threads < 0) {
    return core::InvalidArgument(
        core::Format("num_threads = %d: must not be negative", args.num_threads));
  }
  cuda::PackOrder order;
  order.path = args.path;
  if (args.archs != nullptr) order.archs = args.archs;
  if (args.kernels != nullptr) order.kernels = args.kernels;
  order.num_threads = args.num_threads;
  if (args.progress != nullptr) {
    order.progress = [&args](std::int64_t num_done, std::int64_t num_kernels,
                             const std::string& kernel) {
      args.progress(args.progress_context, num_done, num_kernels, kernel.c_str());
    };
  }
  return cuda::BuildPack(order);
}

Status Describe(const char* path, std::int32_t format, const TextBuffer& buffer) {
  HEED_RETURN_IF_ERROR(RequirePath("path", path));
  HEED_RETURN_IF_ERROR(core::CheckEnum("format", format, HEED_INFO_JSON));
  HEED_RETURN_IF_ERROR(CheckTextBuffer(buffer));
  std::string text;
  HEED_RETURN_IF_ERROR(cuda::DescribePack(
      path, format == HEED_INFO_JSON ? cuda::PackTextFormat::kJson : cuda::PackTextFormat::kPlain,
      &text));
  WriteText(text, buffer);
  return {};
}

Status Verify(const char* path) {
  HEED_RETURN_IF_ERROR(RequirePath("path", path));
  return cuda::VerifyPack(path);
}

}  // namespace
}  // namespace heed::api

using heed::api::AtBoundary;

extern "C" heed_status_t heed_pack_build(const heed_pack_args_t* args) {
  return AtBoundary([&] { return heed::api::Build(args); });
}

extern "C" heed_status_t heed_pack_describe(const char* path, heed_info_format_t format, char* text,
                                            size_t capacity_bytes, size_t* needed_bytes) {
  return AtBoundary([&] {
    return heed::api::Describe(path, heed::core::RawValue(format),
                               {text, capacity_bytes, needed_bytes});
  });
}

extern "C" heed_status_t heed_pack_verify(const char* path) {
  return AtBoundary([&] { return heed::api::Verify(path); });
}
