// One compiled kernel as bytes: an entry of the disk cache is one record, a pack holds many.
//
//   "HEEDIMG1", key (32 bytes), SHA-256 of all that follows (32 bytes),
//   format (u64), arch, log and image (u64 length and bytes each)
#ifndef HEED_CUDA_IMAGE_RECORD_H_
#define HEED_CUDA_IMAGE_RECORD_H_

#include <string>
#include <string_view>

#include "cuda/image_key.h"

namespace heed::cuda {

std::string EncodeImage(const ImageKey& key, const KernelImage& image);

// Gives the image only when the record is whole, unharmed and belongs to the key; otherwise returns
// what is wrong with it. The origin is left as it is.
std::string DecodeImage(std::string_view record, const ImageKey& key, KernelImage* image);

}  // namespace heed::cuda

#endif  // HEED_CUDA_IMAGE_RECORD_H_
