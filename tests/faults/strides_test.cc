// Strides, broadcasting, and offsets beyond 32 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "core/problem.h"
#include "support/attention_call.h"
#include "support/sparse_tensor.h"

namespace heed::test {
namespace {

constexpr std::int64_t kTwoTo30 = std::int64_t{1} << 30;
constexpr std::int64_t kTwoTo31 = std::int64_t{1} << 31;

// pytorch/pytorch#150408: strides of size-1 axes mean nothing.
TEST(Faults, B063_StridesOfSingletonAxesAreIgnored) {
  AttentionCall call(Element::kF32, {1, 9, 1, 16}, {1, 9, 1, 16}, {1, 9, 1, 16});
  call.FillNormal(1);
  call.OnEveryKernel([&] {
    StridedTensor expected(Element::kF32, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    for (const std::int64_t absurd_elems :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 40, INT64_MAX}) {
      std::int64_t strides[4] = {absurd_elems, 16, absurd_elems, 1};
      for (StridedTensor* tensor : {&call.q, &call.k, &call.v, &call.o}) {
        tensor->abi()->strides = strides;
      }
      ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
      ExpectSameValues(expected, call.o);
    }
    for (StridedTensor* tensor : {&call.q, &call.k, &call.v, &call.o}) {
      tensor->abi()->strides = nullptr;
    }
    ASSERT_EQ(call.Run(), HEED_OK);
    ExpectSameValues(expected, call.o);
  });
}

// Bias of `shape` seen as [2,3,4,5] by stride 0 gives the bits of the bias written out in full.
void ExpectBroadcastEqualsFull(Element element, const Indices& shape, bool expanded) {
  AttentionCall call(element, {2, 4, 3, 8}, {2, 5, 3, 8}, {2, 5, 3, 8});
  call.FillNormal(2);
  Indices strides = CompactStrides(shape);
  Indices seen = shape;
  const Indices full_shape{2, 3, 4, 5};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] != 1) continue;
    strides[axis] = 0;
    if (expanded) seen[axis] = full_shape[axis];
  }
  StridedTensor small(element, seen, strides);
  StridedTensor full(element, full_shape);
  double next = -1.0;
  StridedTensor values(element, shape);
  values.Fill([&](const Indices&) { return next += 0.25; });
  const auto value_at = [&](Indices at) {
    for (std::size_t axis = 0; axis < 4; ++axis) at[axis] = shape[axis] == 1 ? 0 : at[axis];
    return values.At(at);
  };
  small.Fill(value_at);
  full.Fill(value_at);
  call.OnEveryKernel([&] {
    call.score.bias = full.abi();
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    StridedTensor expected(element, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    call.score.bias = small.abi();
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    ExpectSameValues(expected, call.o);
  });
}

// pytorch/pytorch#109607: the last axis too may have stride 0.
TEST(Faults, B065_ExpandedBias) {
  ExpectBroadcastEqualsFull(Element::kF32, {2, 1, 1, 5}, true);
  ExpectBroadcastEqualsFull(Element::kF32, {2, 1, 4, 1}, true);
  ExpectBroadcastEqualsFull(Element::kF16, {1, 1, 1, 1}, true);
}

// microsoft/onnxruntime#26769
TEST(Faults, B066_BiasWithSizeOneAxes) {
  for (const Element element : {Element::kF32, Element::kF16}) {
    ExpectBroadcastEqualsFull(element, {1, 1, 4, 5}, false);
    ExpectBroadcastEqualsFull(element, {1, 3, 4, 5}, false);
    ExpectBroadcastEqualsFull(element, {2, 1, 4, 5}, false);
  }
}

// pytorch/pytorch#133671: values count, layouts do not.
TEST(Faults, B061_LayoutsDoNotChangeBits) {
  AttentionCall call(Element::kF32, {2, 49, 2, 32}, {2, 49, 2, 32}, {2, 49, 2, 32});
  call.FillNormal(3);
  const Indices heads_first{2 * 49 * 32, 32, 49 * 32, 1};
  StridedTensor k_view(Element::kF32, call.k.shape(), heads_first);
  StridedTensor o_view(Element::kF32, call.o.shape(), heads_first);
  k_view.Fill([&](const Indices& at) { return call.k.At(at); });
  call.OnEveryKernel([&] {
    call.args.k = k_view.abi();
    call.args.o = o_view.abi();
    ASSERT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
    ExpectSameValues(call.o, o_view);
    call.args.k = call.k.abi();
    call.args.o = call.o.abi();
  });
}

// Dao-AILab/flash-attention#2541: q, k, v as views of one fused projection [T,3,H,D].
TEST(Faults, B064_ViewsOfAFusedProjection) {
  constexpr std::int64_t kTokens = 21, kHeads = 3, kDims = 256;
  AttentionCall call(Element::kF32, {1, kTokens, kHeads, kDims}, {1, kTokens, kHeads, kDims},
                     {1, kTokens, kHeads, kDims});
  call.FillNormal(4);
  StridedTensor fused(Element::kF32, {kTokens, 3, kHeads, kDims});
  const StridedTensor* parts[3] = {&call.q, &call.k, &call.v};
  fused.Fill([&](const Indices& at) { return parts[at[1]]->At({0, at[0], at[2], at[3]}); });
  std::int64_t strides[4] = {0, 3 * kHeads * kDims, kDims, 1};
  heed_tensor_t views[3];
  for (std::size_t part = 0; part < 3; ++part) {
    views[part] = *call.q.abi();
    views[part].data = fused.abi()->data;
    views[part].byte_offset = part * kHeads * kDims * sizeof(float);
    views[part].strides = strides;
  }
  call.OnEveryKernel([&] {
    StridedTensor expected(Element::kF32, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    heed_forward_args_t args = call.args;
    args.q = &views[0];
    args.k = &views[1];
    args.v = &views[2];
    ASSERT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
    ExpectSameValues(expected, call.o);
  });
}

// Dao-AILab/flash-attention#1500, PriorLabs/TabPFN#1184, Dao-AILab/flash-attention#2611: products
// of 32-bit factors in the index function itself, without the memory.
TEST(Faults, B036_B037_B038_RowOffsetsAre64Bit) {
  core::RowsView padded;
  padded.batch_stride_elems = 128 * 16 * 128;
  EXPECT_EQ(padded.OffsetElems(8299, 0, 0), std::int64_t{8299} * 128 * 16 * 128);
  core::RowsView exact;
  exact.batch_stride_elems = kTwoTo30;
  EXPECT_EQ(exact.OffsetElems(2, 0, 0), kTwoTo31);
  core::RowsView wide;
  wide.row_stride_elems = 9728;
  wide.head_stride_elems = 96;
  EXPECT_EQ(wide.OffsetElems(0, 220753, 15), std::int64_t{220753} * 9728 + 15 * 96);
}

// Dao-AILab/flash-attention#2611: rows of a wide concatenation, on the forward inputs and output.
TEST(Faults, B038_RowStridesBeyond32Bits) {
  const Indices shape{1, 3, 1, 8};
  AttentionCall call(Element::kF16, shape, shape, shape);
  call.FillNormal(5);
  const Indices strides{8, kTwoTo30 + 8, 8, 1};
  SparseTensor q(Element::kF16, shape, strides), k(Element::kF16, shape, strides);
  SparseTensor v(Element::kF16, shape, strides), o(Element::kF16, shape, strides);
  q.Fill([&](const Indices& at) { return call.q.At(at); });
  k.Fill([&](const Indices& at) { return call.k.At(at); });
  v.Fill([&](const Indices& at) { return call.v.At(at); });
  call.OnEveryKernel([&] {
    heed_forward_args_t args = call.args;
    args.q = q.abi();
    args.k = k.abi();
    args.v = v.abi();
    args.o = o.abi();
    ASSERT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
    ForEachIndex(shape, [&](const Indices& at) { EXPECT_EQ(o.At(at), call.o.At(at)); });
  });
}

// pytorch/pytorch#187227 and ggml-org/llama.cpp#24912: mask rows whose offsets pass 2^31 and 2^32.
TEST(Faults, B039_B043_MaskRowsBeyond32Bits) {
  AttentionCall call(Element::kF32, {1, 4, 1, 8}, {1, 16, 1, 8}, {1, 16, 1, 8});
  call.FillNormal(6);
  SparseTensor mask(Element::kU8, {1, 1, 4, 16}, {0, 0, kTwoTo31 - 5, 1});
  mask.Fill([](const Indices& at) { return at[3] <= at[2] + 12 ? 1.0 : 0.0; });
  call.OnEveryKernel([&] {
    call.score.causal = HEED_CAUSAL_ON;
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    StridedTensor expected(Element::kF32, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    call.score.causal = HEED_CAUSAL_OFF;
    call.score.mask = mask.abi();
    ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
    ForEachIndex(call.o.shape(),
                 [&](const Indices& at) { EXPECT_NEAR(call.o.At(at), expected.At(at), 1e-6); });
    call.score.mask = nullptr;
  });
}

// Dao-AILab/flash-attention#772: sequence 4 of a cache with batch stride 2^30 begins at 2^32.
TEST(Faults, B042_BatchStrideOf2To30) {
  AttentionCall call(Element::kF16, {5, 1, 1, 8}, {5, 3, 1, 8}, {5, 3, 1, 8});
  call.FillNormal(7);
  SparseTensor k(Element::kF16, call.k.shape(), {kTwoTo30, 8, 8, 1});
  k.Fill([&](const Indices& at) { return call.k.At(at); });
  call.OnEveryKernel([&] {
    StridedTensor expected(Element::kF16, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    call.args.k = k.abi();
    EXPECT_EQ(heed_forward(&call.args), HEED_OK) << heed_last_error();
    ExpectSameValues(expected, call.o);
    call.args.k = call.k.abi();
  });
}

// flashinfer-ai/flashinfer#3130: pages near the end of a pool of more than 2^32 elements.
TEST(Faults, B046_LargePageIds) {
  constexpr std::int64_t kPages = (std::int64_t{1} << 19) + 3;  // of 16 x 512 elements
  const Indices shape{kPages, 16, 1, 512};
  AttentionCall call(Element::kF16, {1, 2, 1, 512}, {3, 16, 1, 512}, {3, 16, 1, 512});
  call.FillNormal(8);
  SparseTensor k(Element::kF16, shape, CompactStrides(shape));
  SparseTensor v(Element::kF16, shape, CompactStrides(shape));
  ForEachIndex(call.k.shape(), [&](const Indices& at) {
    k.Set({at[0] + kPages - 3, at[1], at[2], at[3]}, call.k.At(at));
    v.Set({at[0] + kPages - 3, at[1], at[2], at[3]}, call.v.At(at));
  });
  IntTensor used({45});
  IntTensor low_pages({1, 3}, {2, 0, 1});
  IntTensor high_pages({1, 3}, {kPages - 1, kPages - 3, kPages - 2});
  call.varlen.seqused_kv = used.abi();
  call.args.paging = &call.paging;
  call.paging.block_table = low_pages.abi();
  call.OnEveryKernel([&] {
    StridedTensor expected(Element::kF16, call.o.shape());
    expected.Fill([&](const Indices& at) { return call.o.At(at); });
    heed_paging_args_t paging = HEED_PAGING_ARGS_INIT;
    paging.block_table = high_pages.abi();
    heed_forward_args_t args = call.args;
    args.k = k.abi();
    args.v = v.abi();
    args.paging = &paging;
    ASSERT_EQ(heed_forward(&args), HEED_OK) << heed_last_error();
    ExpectSameValues(expected, call.o);
  });
}

}  // namespace
}  // namespace heed::test
