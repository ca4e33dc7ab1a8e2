#include "gpu/device_copy.h"

#include <algorithm>

namespace heed::test {
namespace {

constexpr std::size_t kBandBytes = 512;
constexpr std::size_t kAlignBytes = 256;

std::size_t SpanBytes(const heed_tensor_t& tensor) {
  std::int64_t last_elems = 0;
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.shape[axis] == 0) return 0;
    if (tensor.shape[axis] > 1) last_elems += (tensor.shape[axis] - 1) * tensor.strides[axis];
  }
  return static_cast<std::size_t>(last_elems + 1) * tensor.dtype.bits / 8;
}

}  // namespace

DeviceBlock::DeviceBlock(std::size_t size_bytes, std::size_t offset_bytes)
    : size_bytes_(size_bytes) {
  const std::size_t all_bytes = kBandBytes + kAlignBytes + size_bytes + kBandBytes;
  block_ = Cuda::Get().Allocate(all_bytes);
  Cuda::Get().Fill(block_, 0xff, all_bytes);
  payload_ = block_ + kBandBytes + offset_bytes % kAlignBytes;
}

DeviceBlock::~DeviceBlock() { Cuda::Get().Free(block_); }

std::string DeviceBlock::DescribeDamage() const {
  std::vector<unsigned char> before(payload_ - block_), after(kBandBytes);
  Cuda::Get().ToHost(before.data(), block_, before.size());
  Cuda::Get().ToHost(after.data(), payload_ + size_bytes_, after.size());
  const auto is_damaged = [](unsigned char byte) { return byte != 0xff; };
  if (std::any_of(before.begin(), before.end(), is_damaged)) return "wrote before the block";
  if (std::any_of(after.begin(), after.end(), is_damaged)) return "wrote past the block's end";
  return "";
}

DeviceCopy::DeviceCopy(const heed_tensor_t& host) : host_(host), tensor_(host) {
  const auto* data = static_cast<const char*>(host.data) + host.byte_offset;
  block_ =
      std::make_unique<DeviceBlock>(SpanBytes(host), reinterpret_cast<std::uintptr_t>(data) % 64);
  Cuda::Get().ToDevice(block_->address(), data, block_->size_bytes());
  tensor_.data = block_->data();
  tensor_.byte_offset = 0;
  tensor_.device = {HEED_DEVICE_CUDA, 0};
}

void DeviceCopy::CopyBack() const {
  Cuda::Get().ToHost(static_cast<char*>(host_.data) + host_.byte_offset, block_->address(),
                     block_->size_bytes());
}

}  // namespace heed::test
