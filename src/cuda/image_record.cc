#include "cuda/image_record.h"

#include "cuda/byte_fields.h"

namespace heed::cuda {
namespace {

constexpr std::string_view kMagic = "HEEDIMG1";

}  // namespace

std::string EncodeImage(const ImageKey& key, const KernelImage& image) {
  std::string body;
  AppendU64(&body, static_cast<std::uint64_t>(image.format));
  AppendText(&body, image.arch);
  AppendText(&body, image.log);
  AppendText(&body, {image.cubin.data(), image.cubin.size()});
  std::string record(kMagic);
  AppendDigest(&record, key);
  AppendDigest(&record, core::Sha256Of(body));
  return record + body;
}

std::string DecodeImage(std::string_view record, const ImageKey& key, KernelImage* image) {
  FieldReader reader(record);
  std::string_view magic;
  if (!reader.Take(kMagic.size(), &magic) || magic != kMagic) return "is not a kernel image";
  ImageKey stored_key;
  core::Sha256Digest checksum;
  if (!reader.TakeDigest(&stored_key) || !reader.TakeDigest(&checksum)) return "is cut short";
  if (stored_key != key) return "holds another kernel";
  const std::string_view body = record.substr(record.size() - reader.num_bytes_left());
  if (core::Sha256Of(body) != checksum) return "is damaged or cut short";
  std::uint64_t format = 0;
  std::string cubin;
  KernelImage decoded;
  // The checksum holds, so only a writer's mistake can make these fail.
  if (!reader.TakeU64(&format) || format > static_cast<std::uint64_t>(KernelImage::Format::kPtx) ||
      !reader.TakeText(&decoded.arch) || !reader.TakeText(&decoded.log) ||
      !reader.TakeText(&cubin) || reader.num_bytes_left() != 0 || cubin.empty()) {
    return "does not add up";
  }
  image->format = static_cast<KernelImage::Format>(format);
  image->arch = std::move(decoded.arch);
  image->log = std::move(decoded.log);
  image->cubin.assign(cubin.begin(), cubin.end());
  return {};
}

}  // namespace heed::cuda
