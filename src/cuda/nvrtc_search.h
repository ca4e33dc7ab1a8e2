// Where NVRTC may lie. It comes with CUDA toolkits, with Python packages and with torch.
#ifndef HEED_CUDA_NVRTC_SEARCH_H_
#define HEED_CUDA_NVRTC_SEARCH_H_

#include <string>
#include <vector>

namespace heed::cuda {

// Kernels are C++20 with __builtin_bit_cast, which came with NVRTC 12.3. Its images load on every
// driver of CUDA 12.
inline constexpr int kOldestNvrtcMajor = 12;
inline constexpr int kOldestNvrtcMinor = 3;
inline constexpr int kNewestNvrtcMajor = 13;

struct NvrtcCandidate {
  std::string file;  // a path, or a bare name for the system's own search
  int major = 0;     // 0 = not known from the name
};

// Files worth opening, best first; those with a major version above max_major or below
// kOldestNvrtcMajor are left out. Reads
// environment variables and folders, opens nothing. HEED_NVRTC, when set, is the only candidate,
// whatever its version. *searched names the places in words.
std::vector<NvrtcCandidate> NvrtcCandidates(int max_major, std::string* searched);

// Site-packages folders that a Python of this process, or of this user, reads.
std::vector<std::string> SitePackagesFolders();

// 12 for "libnvrtc.so.12", "libnvrtc-672ee683.so.12.1"; 0 when the name is not NVRTC's.
int NvrtcMajorOfFile(const std::string& file_name);

}  // namespace heed::cuda

#endif  // HEED_CUDA_NVRTC_SEARCH_H_
