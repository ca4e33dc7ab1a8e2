// heed_pack_build, heed_pack_describe, heed_pack_verify.
#include <cinttypes>

#include "api/boundary.h"
#include "api/text.h"
#include "core/abi_struct.h"
#include "core/decode_problem.h"
#include "cuda/packs.h"

namespace heed::api {
namespace {

using core::Status;

Status RequirePath(const char* name, const char* path) {
  if (path == nullptr) return core::RequirePointer(name, path);
  return path[0] != '\0' ? Status()
                         : core::InvalidArgument(core::Format("%s = \"\": names no file", name));
}

Status ReadDecodeCalls(const heed_pack_args_t& args, cuda::PackOrder* order) {
  if (args.num_decode_calls < 0 || (args.num_decode_calls > 0 && args.decode_calls == nullptr)) {
    return core::InvalidArgument(core::Format("num_decode_calls = %" PRId64
                                              ": decode_calls must point to as many",
                                              args.num_decode_calls));
  }
  for (std::int64_t at = 0; at < args.num_decode_calls; ++at) {
    core::DecodeProblem problem;
    const Status status =
        core::BuildDecodeProblem(args.decode_calls[at], core::Purpose::kPlan, &problem);
    if (!status.ok()) {
      return {status.code(),
              core::Format("decode_calls[%" PRId64 "]: %s", at, status.message().c_str())};
    }
    order->decode_calls.push_back(problem);
  }
  return {};
}

Status ReadCalls(const heed_pack_args_t& args, cuda::PackOrder* order) {
  if (args.num_calls < 0 || (args.num_calls > 0 && args.calls == nullptr)) {
    return core::InvalidArgument(
        core::Format("num_calls = %" PRId64 ": calls must point to as many", args.num_calls));
  }
  HEED_RETURN_IF_ERROR(
      core::CheckEnum("with_gradients", core::RawValue(args.with_gradients), HEED_ON));
  for (std::int64_t at = 0; at < args.num_calls; ++at) {
    core::ForwardProblem problem;
    const Status status = core::BuildForwardProblem(args.calls[at], core::Purpose::kPlan, &problem);
    if (!status.ok()) {
      return {status.code(), core::Format("calls[%" PRId64 "]: %s", at, status.message().c_str())};
    }
    order->calls.push_back(problem);
  }
  if (args.with_gradients == HEED_ON) order->last_pass = cuda::Pass::kGradients;
  return ReadDecodeCalls(args, order);
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
  if (args.archs != nullptr) {
    if (args.archs[0] == '\0') {
      return core::InvalidArgument("archs = \"\": names no architecture; NULL stands for all");
    }
    order.archs = args.archs;
  }
  if (args.kernels != nullptr) order.kernels = args.kernels;
  if (args.features != nullptr) {
    if (args.features[0] == '\0') {
      return core::InvalidArgument("features = \"\": names no feature; NULL stands for none");
    }
    order.features = args.features;
  }
  HEED_RETURN_IF_ERROR(ReadCalls(args, &order));
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
