// Lengths and block tables that no forward call accepts, and the mixtures of packings that all do.
#include <gtest/gtest.h>

#include "api/forward_call.h"

namespace heed::test {
namespace {

void ExpectInvalid(const std::function<void(ForwardCall&)>& spoil, const std::string& fragment) {
  ExpectRefused(spoil, HEED_INVALID_ARGUMENT, fragment);
}

std::function<void(ForwardCall&)> PackedWith(std::vector<std::int32_t> cu_seqlens_q) {
  return [cu_seqlens_q](ForwardCall& call) {
    call.PackQ();
    call.PackKv();
    call.cu_seqlens_q = OwnedTensor::Indices(cu_seqlens_q);
  };
}

TEST(Lengths, EveryMixtureOfPackingsRuns) {
  ExpectAccepted([](ForwardCall& call) { call.PackQ(); });
  ExpectAccepted([](ForwardCall& call) { call.PackKv(); });
  ExpectAccepted([](ForwardCall& call) { call.Page(); });
  ExpectAccepted([](ForwardCall& call) {
    call.PackQ();
    call.PackKv();
  });
  ExpectAccepted([](ForwardCall& call) {
    call.PackQ();
    call.Page();
  });
  ExpectAccepted([](ForwardCall& call) {
    call.varlen.seqused_q = &call.seqused_q.abi;
    call.varlen.seqused_kv = &call.seqused_kv.abi;
  });
}

TEST(BadLengths, Offsets) {
  ExpectAccepted(PackedWith({1, 1, 5}));
  ExpectInvalid(PackedWith({0, 3, 2}), "varlen.cu_seqlens_q[2] = 2: must be at least 3");
  ExpectInvalid(PackedWith({-1, 2, 6}), "varlen.cu_seqlens_q[0] = -1: must be at least 0");
  ExpectInvalid(PackedWith({0, 2, 7}),
                "varlen.cu_seqlens_q[2] = 7: must not exceed q.shape[0] (total_q) = 6");
  ExpectInvalid(PackedWith({0, 6}), "varlen.cu_seqlens_kv.shape[0] (batch + 1) = 3: must be 2");
  ExpectInvalid(PackedWith({}), "varlen.cu_seqlens_q.shape[0] (batch + 1) = 0: must be at least 1");
}

TEST(BadLengths, KvOffsets) {
  const auto with = [](std::vector<std::int32_t> offsets) {
    return [offsets](ForwardCall& call) {
      call.PackKv();
      call.cu_seqlens_kv = OwnedTensor::Indices(offsets);
    };
  };
  ExpectAccepted(with({2, 4, 4}));
  ExpectInvalid(with({0, 7, 11}),
                "varlen.cu_seqlens_kv[2] = 11: must not exceed k.shape[0] (total_kv) = 10");
  ExpectInvalid(with({0, 7, 6}), "varlen.cu_seqlens_kv[2] = 6: must be at least 7");
  ExpectInvalid(with({0, 7}), "varlen.cu_seqlens_kv.shape[0] (batch + 1) = 2: must be 3");
}

TEST(BadLengths, OffsetTensors) {
  const auto packed = [](ForwardCall& call) { call.PackQ(); };
  ExpectInvalid(
      [&](ForwardCall& call) {
        packed(call);
        call.cu_seqlens_q.abi.dtype = kI64;
      },
      "varlen.cu_seqlens_q.dtype = i64: must be i32");
  ExpectInvalid(
      [&](ForwardCall& call) {
        packed(call);
        call.cu_seqlens_q = OwnedTensor(kI32, {1, 3});
      },
      "varlen.cu_seqlens_q.ndim = 2: must be 1 [batch + 1]");
  ExpectInvalid(
      [&](ForwardCall& call) {
        packed(call);
        call.cu_seqlens_q.abi.data = nullptr;
      },
      "varlen.cu_seqlens_q.data = NULL");
  ExpectInvalid([](ForwardCall& call) { call.varlen.cu_seqlens_q = &call.cu_seqlens_q.abi; },
                "q.ndim = 4: must be 3 [total_q, num_q_heads, head_dim]");
}

// Offsets may be strided, for example a column of a table.
TEST(BadLengths, StridedOffsets) {
  ExpectAccepted([](ForwardCall& call) {
    call.PackQ();
    call.cu_seqlens_q = OwnedTensor::Indices({0, 99, 2, 99, 6, 99});
    call.cu_seqlens_q.shape[0] = 3;
    call.cu_seqlens_q.strides[0] = 2;
  });
}

TEST(BadLengths, UsedRows) {
  const auto with_q = [](std::vector<std::int32_t> used) {
    return [used](ForwardCall& call) {
      call.seqused_q = OwnedTensor::Indices(used);
      call.varlen.seqused_q = &call.seqused_q.abi;
    };
  };
  ExpectAccepted(with_q({0, 3}));
  ExpectInvalid(with_q({4, 3}), "varlen.seqused_q[0] = 4: must not exceed the sequence's 3 rows");
  ExpectInvalid(with_q({3, -1}), "varlen.seqused_q[1] = -1: must be at least 0");
  ExpectInvalid(with_q({3}), "varlen.seqused_q.shape[0] (batch) = 1: must be 2");
  ExpectInvalid(
      [](ForwardCall& call) {
        call.PackKv();
        call.seqused_kv = OwnedTensor::Indices({7, 4});
        call.varlen.seqused_kv = &call.seqused_kv.abi;
      },
      "varlen.seqused_kv[1] = 4: must not exceed the sequence's 3 rows");
}

TEST(BadLengths, MaxSeqlen) {
  const auto with = [](std::int64_t max_seqlen_q) {
    return [max_seqlen_q](ForwardCall& call) {
      call.PackQ();
      call.varlen.max_seqlen_q = max_seqlen_q;
    };
  };
  ExpectAccepted(with(4));
  ExpectAccepted(with(1000));
  ExpectInvalid(with(3), "varlen.max_seqlen_q = 3: must not be below the longest sequence, 4 rows");
  ExpectInvalid(with(-1), "varlen.max_seqlen_q = -1: must not be negative");
  ExpectInvalid([](ForwardCall& call) { call.varlen.max_seqlen_kv = 4; },
                "varlen.max_seqlen_kv = 4: must not be below the longest sequence, 5 rows");
}

TEST(BadLengths, DenseKeysForPackedQueries) {
  ExpectInvalid(
      [](ForwardCall& call) {
        call.PackQ();
        call.cu_seqlens_q = OwnedTensor::Indices({0, 1, 2, 6});
      },
      "k.shape[0] (batch) = 2: must equal the batch of varlen.cu_seqlens_q = 3");
}

TEST(BadLengths, Paging) {
  const auto paged = [](const std::function<void(ForwardCall&)>& spoil) {
    return [spoil](ForwardCall& call) {
      call.Page();
      spoil(call);
    };
  };
  ExpectInvalid(paged([](ForwardCall& call) { call.paging.block_table = nullptr; }),
                "paging.block_table = NULL: is required");
  ExpectInvalid(paged([](ForwardCall& call) { call.varlen.seqused_kv = nullptr; }),
                "varlen.seqused_kv = NULL: is required with paging");
  ExpectInvalid(
      paged([](ForwardCall& call) { call.varlen.cu_seqlens_kv = &call.cu_seqlens_kv.abi; }),
      "varlen.cu_seqlens_kv: must be NULL with paging");
  ExpectInvalid(paged([](ForwardCall& call) {
                  call.block_table.abi.dtype = {1, 32, 1};
                }),
                "paging.block_table.dtype = {code 1, bits 32}");
  ExpectInvalid(paged([](ForwardCall& call) { call.block_table.shape[0] = 1; }),
                "paging.block_table.shape[0] (batch) = 1: must be the batch, 2");
  ExpectInvalid(paged([](ForwardCall& call) { call.block_table.data<std::int32_t>()[1] = 6; }),
                "paging.block_table[0][1] = 6: must be below k.shape[0] (num_pages) = 6");
  ExpectInvalid(paged([](ForwardCall& call) { call.block_table.data<std::int32_t>()[3] = -1; }),
                "paging.block_table[1][0] = -1");
  ExpectInvalid(paged([](ForwardCall& call) { call.seqused_kv.data<std::int32_t>()[0] = 13; }),
                "varlen.seqused_kv[0] = 13: must not exceed the sequence's 12 rows");
  ExpectInvalid(paged([](ForwardCall& call) { call.k.shape[1] = call.v.shape[1] = 0; }),
                "varlen.seqused_kv[0] = 7: must not exceed the sequence's 0 rows");
}

}  // namespace
}  // namespace heed::test
