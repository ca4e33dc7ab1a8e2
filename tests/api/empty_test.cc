// Empty batches, no heads and zero lengths are legal and give empty or zero results.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/forward_call.h"

namespace heed::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// An empty tensor needs no memory.
OwnedTensor Empty(std::vector<std::int64_t> shape) {
  OwnedTensor tensor(kF32, std::move(shape));
  tensor.abi.data = nullptr;
  return tensor;
}

TEST(Empty, Batch) {
  ExpectAccepted([](ForwardCall& call) {
    call.q = Empty({0, 3, 4, 8});
    call.k = Empty({0, 5, 2, 8});
    call.v = Empty({0, 5, 2, 6});
    call.o = Empty({0, 3, 4, 6});
    call.lse = Empty({0, 4, 3});
  });
}

TEST(Empty, PackedBatch) {
  ExpectAccepted([](ForwardCall& call) {
    call.PackQ();
    call.PackKv();
    call.cu_seqlens_q = OwnedTensor::Indices({0});
    call.cu_seqlens_kv = OwnedTensor::Indices({0});
  });
}

TEST(Empty, Heads) {
  ExpectAccepted([](ForwardCall& call) {
    call.q = Empty({2, 3, 0, 8});
    call.k = Empty({2, 5, 0, 8});
    call.v = Empty({2, 5, 0, 6});
    call.o = Empty({2, 3, 0, 6});
    call.lse = Empty({2, 0, 3});
  });
}

TEST(Empty, Queries) {
  ExpectAccepted([](ForwardCall& call) {
    call.q = Empty({2, 0, 4, 8});
    call.o = Empty({2, 0, 4, 6});
    call.lse = Empty({2, 4, 0});
  });
}

void ExpectNothingSeen(ForwardCall& call, std::size_t num_rows) {
  ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
  for (std::size_t index = 0; index < num_rows * 6; ++index) {
    EXPECT_EQ(call.o.data<float>()[index], 0.0f) << index;
  }
  for (std::size_t index = 0; index < num_rows; ++index) {
    EXPECT_EQ(call.lse.data<float>()[index], kMinusInfinity) << index;
  }
}

TEST(Empty, KeysGiveZeroAndMinusInfinity) {
  for (const heed_backend_t backend : {HEED_BACKEND_CPU, HEED_BACKEND_REFERENCE}) {
    ForwardCall call;
    call.exec.backend = backend;
    call.k = Empty({2, 0, 2, 8});
    call.v = Empty({2, 0, 2, 6});
    ExpectNothingSeen(call, 2 * 3 * 4);
  }
}

TEST(Empty, PagedLengthsGiveZeroAndMinusInfinity) {
  for (const heed_backend_t backend : {HEED_BACKEND_CPU, HEED_BACKEND_REFERENCE}) {
    ForwardCall call;
    call.Page();
    call.exec.backend = backend;
    call.seqused_kv = OwnedTensor::Indices({0, 0});
    call.k = Empty({0, 4, 2, 8});
    call.v = Empty({0, 4, 2, 6});
    ExpectNothingSeen(call, 2 * 3 * 4);
  }
}

TEST(Empty, AnEmptyRowWithASinkHasTheSinkAsLse) {
  OwnedTensor sinks(kF32, {4});
  for (int head = 0; head < 4; ++head) sinks.data<float>()[head] = 0.5f * static_cast<float>(head);
  ForwardCall call;
  call.score.sinks = &sinks.abi;
  call.k = Empty({2, 0, 2, 8});
  call.v = Empty({2, 0, 2, 6});
  ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
  for (int index = 0; index < 2 * 4 * 3; ++index) {
    EXPECT_FLOAT_EQ(call.lse.data<float>()[index], 0.5f * static_cast<float>(index / 3 % 4));
  }
}

}  // namespace
}  // namespace heed::test
