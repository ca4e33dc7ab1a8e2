// A host test tensor on the GPU, between guard bands, with the same bytes in every gap.
#ifndef HEED_TESTS_GPU_DEVICE_COPY_H_
#define HEED_TESTS_GPU_DEVICE_COPY_H_

#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda.h"
#include "heed/heed.h"

namespace heed::test {

// Device memory between two bands of 0xFF.
class DeviceBlock {
 public:
  // offset_bytes: distance of the payload from 256-byte alignment.
  explicit DeviceBlock(std::size_t size_bytes, std::size_t offset_bytes = 0);
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  ~DeviceBlock();

  void* data() const { return reinterpret_cast<void*>(payload_); }
  std::uint64_t address() const { return payload_; }
  std::size_t size_bytes() const { return size_bytes_; }
  // Empty when nobody wrote into the bands.
  std::string DescribeDamage() const;

 private:
  std::uint64_t block_ = 0;
  std::uint64_t payload_ = 0;
  std::size_t size_bytes_ = 0;
};

class DeviceCopy {
 public:
  // Copies every byte from the first to the last element. The address keeps its place modulo 64.
  explicit DeviceCopy(const heed_tensor_t& host);

  const heed_tensor_t* tensor() const { return &tensor_; }
  // Host memory becomes what the device holds, gaps included.
  void CopyBack() const;
  std::string DescribeDamage() const { return block_->DescribeDamage(); }

 private:
  heed_tensor_t host_;
  heed_tensor_t tensor_;
  std::unique_ptr<DeviceBlock> block_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_DEVICE_COPY_H_
