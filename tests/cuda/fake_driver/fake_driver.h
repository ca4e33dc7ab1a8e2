// What tests tell and ask the fake CUDA driver.
#ifndef HEED_TESTS_CUDA_FAKE_DRIVER_FAKE_DRIVER_H_
#define HEED_TESTS_CUDA_FAKE_DRIVER_FAKE_DRIVER_H_

#include <vector>

namespace heed::test {

// By default like an H100.
struct FakeGpu {
  int compute_capability = 90;
  int num_multiprocessors = 132;
  int max_shared_bytes = 232448;
};

// Before the library's first look at the driver; later it remembers what it saw.
void SetFakeGpu(const FakeGpu& gpu);
long long NumFakeLaunches();
// gridDim.x of the launches since the last call.
std::vector<unsigned> TakeFakeGrids();
// Loaded and not unloaded.
long long NumFakeModules();
// Tensor maps that were encoded.
long long NumFakeTensorMaps();
// Streams, events and executable graphs that are there.
long long NumFakeHandles();
// Launches of graphs; the kernels in them count as launches too.
long long NumFakeGraphLaunches();
// Streams that were made to wait for another one.
long long NumFakeStreamWaits();

}  // namespace heed::test

#endif  // HEED_TESTS_CUDA_FAKE_DRIVER_FAKE_DRIVER_H_
