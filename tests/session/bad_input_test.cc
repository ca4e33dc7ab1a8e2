// What sessions refuse, in which words, and that a refused call leaves the session as it was.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "session/session_rig.h"

namespace heed::test {
namespace {

void ExpectRefused(heed_status_t got, const std::string& fragment,
                   heed_status_t wanted = HEED_INVALID_ARGUMENT) {
  EXPECT_STREQ(heed_status_name(got), heed_status_name(wanted));
  EXPECT_NE(std::string(heed_last_error()).find(fragment), std::string::npos)
      << "message:  " << heed_last_error() << "\nfragment: " << fragment;
}

TEST(SessionErrors, Configuration) {
  SessionRig rig({1, 4, 2, 64, 64, 128, Element::kF32, HEED_KV_PLAIN});
  heed_session_config_t& config = rig.config;
  heed_session_t** session = &rig.session;
  ExpectRefused(heed_session_create(nullptr, session), "config = NULL: is required");
  ExpectRefused(heed_session_create(&config, nullptr), "session = NULL: is required");
  config.struct_size = 8;
  ExpectRefused(heed_session_create(&config, session), "config.struct_size = 8");
  config.struct_size = sizeof(config);
  struct Extent {
    std::int64_t* field;
    const char* name;
  };
  for (const Extent& extent : {Extent{&config.num_sequences, "config.num_sequences"},
                               Extent{&config.num_q_heads, "config.num_q_heads"},
                               Extent{&config.num_kv_heads, "config.num_kv_heads"},
                               Extent{&config.head_dim, "config.head_dim"},
                               Extent{&config.head_dim_v, "config.head_dim_v"},
                               Extent{&config.capacity_tokens, "config.capacity_tokens"}}) {
    const std::int64_t good = *extent.field;
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-7}}) {
      *extent.field = bad;
      ExpectRefused(
          heed_session_create(&config, session),
          std::string(extent.name) + " = " + std::to_string(bad) + ": must be at least 1");
    }
    *extent.field = good;
  }
  config.capacity_tokens = std::int64_t{1} << 31;
  ExpectRefused(heed_session_create(&config, session),
                "config.capacity_tokens = 2147483648: must be at most 2147483647");
  config.capacity_tokens = 128;
  config.num_kv_heads = 3;
  ExpectRefused(heed_session_create(&config, session),
                "config.num_kv_heads = 3: must divide config.num_q_heads = 4");
  config.num_kv_heads = 2;
  config.dtype = kF64;
  ExpectRefused(heed_session_create(&config, session), "config.dtype = {code 2, bits 64, lanes 1}");
  config.dtype = {HEED_DTYPE_FLOAT, 32, 4};
  ExpectRefused(heed_session_create(&config, session), "lanes 4}: must be one of f32, f16, bf16");
  config.dtype = kF32;
  const std::int32_t bad_enum = 99;
  std::memcpy(&config.kv_format, &bad_enum, sizeof(bad_enum));
  ExpectRefused(heed_session_create(&config, session), "config.kv_format = 99");
  config.kv_format = HEED_KV_PLAIN;
  std::memcpy(&config.use_graph, &bad_enum, sizeof(bad_enum));
  ExpectRefused(heed_session_create(&config, session), "config.use_graph = 99");
  config.use_graph = HEED_OFF;
  rig.score.softcap = -1.0;
  ExpectRefused(heed_session_create(&config, session), "score.softcap = -1: must be");
  rig.score.softcap = 0.0;
  config.device.device_id = 1;
  ExpectRefused(heed_session_create(&config, session), "config.device.device_id = 1: must be 0");
  config.device.device_id = 0;
  alignas(64) static unsigned char block[64];
  rig.exec.workspace = block;
  rig.exec.workspace_bytes = sizeof(block);
  ExpectRefused(heed_session_create(&config, session), "exec.workspace: must be NULL");
  EXPECT_EQ(rig.session, nullptr);
}

TEST(SessionErrors, SizesBeyondAnyMemory) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  SessionRig rig({1, 4, 2, 64, 64, 128, Element::kF32, HEED_KV_PLAIN});
  rig.config.num_sequences = huge;
  const heed_status_t sequences = rig.Create();
  EXPECT_TRUE(sequences == HEED_INVALID_ARGUMENT || sequences == HEED_OUT_OF_MEMORY)
      << heed_last_error();
  rig.config.num_sequences = 1;
  rig.config.num_q_heads = rig.config.num_kv_heads = huge;
  EXPECT_NE(rig.Create(), HEED_OK);
  rig.config.num_q_heads = 4;
  rig.config.num_kv_heads = 2;
  rig.config.head_dim_v = huge;
  EXPECT_NE(rig.Create(), HEED_OK);
  rig.config.head_dim_v = 64;
  EXPECT_EQ(rig.session, nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators abort
  // 2^31 tokens x 2^22 heads x 64: within 64 bits, beyond every machine.
  rig.config.num_q_heads = rig.config.num_kv_heads = 1 << 22;
  rig.config.capacity_tokens = std::numeric_limits<std::int32_t>::max();
  ExpectRefused(rig.Create(), "gave no workspace", HEED_OUT_OF_MEMORY);
#endif
  EXPECT_EQ(rig.session, nullptr);
}

TEST(SessionErrors, ScoreTensorsReachTheCapacity) {
  SessionRig rig({1, 4, 2, 64, 64, 128, Element::kF32, HEED_KV_PLAIN});
  OwnedTensor mask(kU8, {1, 127}, 1);
  rig.score.mask = &mask.abi;
  ExpectRefused(rig.Create(), "score.mask.shape[1] (kv_len) = 127: must be 1 or at least 128");
}

TEST(SessionErrors, Devices) {
  SessionRig rig({1, 4, 2, 64, 64, 128, Element::kBF16, HEED_KV_PLAIN});
  rig.config.device = {HEED_DEVICE_WEBGPU, 0};
  EXPECT_NE(rig.Create(), HEED_OK);
  rig.config.device = {HEED_DEVICE_CPU, 0};
  ASSERT_EQ(rig.Create(), HEED_OK) << heed_last_error();
  OwnedTensor q(kF32, {1, 1, 4, 64}), kv(kF32, {1, 1, 2, 64});
  q.abi.device = {HEED_DEVICE_CUDA, 0};
  ExpectRefused(heed_session_append(rig.session, &q.abi, &kv.abi, &kv.abi),
                "q.device = cuda:0: must be in host memory for a session on the CPU");
}

TEST(SessionErrors, CallsInTheWrongState) {
  SessionRig rig({1, 4, 2, 64, 64, 128, Element::kF32, HEED_KV_PLAIN});
  ASSERT_EQ(rig.Create(), HEED_OK);
  OwnedTensor o(kF32, {1, 1, 4, 64});
  const std::string no_queries = "heed_session_append must come before heed_session_decode";
  const std::string no_output = "heed_session_decode must come before heed_session_output";
  ExpectRefused(heed_session_decode(rig.session), no_queries);
  ExpectRefused(heed_session_output(rig.session, &o.abi), no_output);
  ASSERT_EQ(rig.Append(1), HEED_OK);
  ExpectRefused(heed_session_output(rig.session, &o.abi), no_output);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  EXPECT_EQ(heed_session_output(rig.session, &o.abi), HEED_OK);
  ASSERT_EQ(rig.Append(1), HEED_OK);
  ExpectRefused(heed_session_output(rig.session, &o.abi), no_output);
  ASSERT_EQ(heed_session_truncate(rig.session, 1), HEED_OK);
  ExpectRefused(heed_session_decode(rig.session), no_queries);
  ExpectRefused(heed_session_truncate(rig.session, 2), "length_tokens = 2: must be from 0 to 1");
  ExpectRefused(heed_session_truncate(rig.session, -1), "length_tokens = -1: must be from 0 to 1");
}

TEST(SessionErrors, Tensors) {
  SessionRig rig({2, 4, 2, 64, 32, 8, Element::kBF16, HEED_KV_PLAIN});
  ASSERT_EQ(rig.Create(), HEED_OK);
  OwnedTensor q(kF32, {2, 1, 4, 64}), k(kF32, {2, 1, 2, 64}), v(kF32, {2, 1, 2, 32});
  const auto append = [&] { return heed_session_append(rig.session, &q.abi, &k.abi, &v.abi); };
  ExpectRefused(heed_session_append(rig.session, nullptr, &k.abi, &v.abi), "q = NULL: is required");
  ExpectRefused(heed_session_append(rig.session, &q.abi, nullptr, &v.abi), "k = NULL: is required");
  ExpectRefused(heed_session_append(rig.session, &q.abi, &k.abi, nullptr), "v = NULL: is required");
  q.abi.ndim = 3;
  ExpectRefused(append(), "q.ndim = 3: must be 4 [batch, new_tokens, num_q_heads, head_dim]");
  q.abi.ndim = 4;
  q.abi.dtype = kF16;
  ExpectRefused(append(), "q.dtype = f16: must be one of f32, bf16");
  q.abi.dtype = kF32;
  k.abi.data = nullptr;
  ExpectRefused(append(), "k.data = NULL");
  k.abi.data = k.data<float>();
  const std::int64_t bad_extents[] = {0, -1, 3, std::numeric_limits<std::int64_t>::max()};
  for (const std::int64_t extent : bad_extents) {
    for (OwnedTensor* tensor : {&q, &k, &v}) {
      for (std::size_t axis = 0; axis < 4; ++axis) {
        const std::int64_t good = tensor->shape[axis];
        tensor->shape[axis] = extent;
        EXPECT_EQ(append(), HEED_INVALID_ARGUMENT) << axis << " " << extent;
        tensor->shape[axis] = good;
        const std::int64_t stride = tensor->strides[axis];
        tensor->strides[axis] = axis == 3 || extent != 3 ? -1 : stride;
        if (tensor->strides[axis] == -1) {
          EXPECT_EQ(append(), HEED_INVALID_ARGUMENT);
        }
        tensor->strides[axis] = stride;
      }
    }
  }
  q.shape[1] = k.shape[1] = v.shape[1] = 9;
  q.strides[1] = k.strides[1] = v.strides[1] = 0;
  ExpectRefused(append(),
                "q.shape[1] (new_tokens) = 9: must be at most 8 (config.capacity_tokens = "
                "8, of which 0 are taken)");
  q.shape[1] = k.shape[1] = v.shape[1] = 1;
  ASSERT_EQ(append(), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  OwnedTensor o(kF32, {2, 1, 4, 32});
  ExpectRefused(heed_session_output(rig.session, nullptr), "o = NULL: is required");
  o.abi.dtype = kF16;
  ExpectRefused(heed_session_output(rig.session, &o.abi), "o.dtype = f16");
  o.abi.dtype = kF32;
  o.strides[2] = 0;
  ExpectRefused(heed_session_output(rig.session, &o.abi), "o.strides[2] = 0: an output must not");
  o.strides[2] = 32;
  o.shape[1] = 2;
  ExpectRefused(heed_session_output(rig.session, &o.abi),
                "o.shape[1] (new_tokens) = 2: must be 1 (tokens of the last append)");
  ExpectRefused(heed_session_query(rig.session, nullptr), "info = NULL: is required");
  heed_session_info_t info = HEED_SESSION_INFO_INIT;
  info.struct_size = 1;
  ExpectRefused(heed_session_query(rig.session, &info), "info.struct_size = 1");
  EXPECT_EQ(rig.Query().length_tokens, 1);
}

TEST(SessionErrors, StaleAndForeignHandles) {
  heed_session_t* stale = nullptr;
  SessionRig other({1, 1, 1, 8, 8, 8, Element::kF32, HEED_KV_PLAIN});
  {
    SessionRig rig(other.shape);
    ASSERT_EQ(rig.Create(), HEED_OK);
    stale = rig.session;
  }
  ASSERT_EQ(other.Create(), HEED_OK);
  int local = 0;
  for (heed_session_t* handle : {stale, reinterpret_cast<heed_session_t*>(&local),
                                 reinterpret_cast<heed_session_t*>(~std::uintptr_t{0})}) {
    EXPECT_NE(handle, other.session);
    heed_session_info_t info = HEED_SESSION_INFO_INIT;
    ExpectRefused(heed_session_decode(handle), "is not an open session of heed_session_create");
    ExpectRefused(heed_session_append(handle, nullptr, nullptr, nullptr), "is not an open session");
    ExpectRefused(heed_session_output(handle, nullptr), "is not an open session");
    ExpectRefused(heed_session_synchronize(handle), "is not an open session");
    ExpectRefused(heed_session_truncate(handle, 0), "is not an open session");
    ExpectRefused(heed_session_query(handle, &info), "is not an open session");
    ExpectRefused(heed_session_destroy(handle), "is not an open session");
  }
}

// Random calls with random arguments, most of them wrong: every answer is a status, and what the
// session says of its length agrees with the calls that succeeded.
TEST(SessionErrors, RandomCalls) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed, "random session calls");
    const std::int64_t heads = 1 + random.Below(2);
    SessionRig rig({1 + random.Below(2), 2 * heads, heads, 8, 16, 1 + random.Below(12),
                    random.Pick({Element::kF32, Element::kF16, Element::kBF16}),
                    random.Pick({HEED_KV_PLAIN, HEED_KV_INT8, HEED_KV_INT4, HEED_KV_Q4_0})});
    ASSERT_EQ(rig.Create(), HEED_OK) << heed_last_error();
    const SessionShape& shape = rig.shape;
    std::int64_t length = 0;
    for (int call = 0; call < 60; ++call) {
      const std::int64_t tokens = random.Below(5);
      const std::int64_t batch = shape.batch + (random.Chance(0.1) ? 1 : 0);
      OwnedTensor q(kF32, {batch, tokens, shape.num_q_heads, 8});
      OwnedTensor k(random.Chance(0.1) ? kI8 : kF32, {shape.batch, tokens, shape.num_kv_heads, 8});
      OwnedTensor v(
          kF32, {shape.batch, random.Chance(0.1) ? tokens + 1 : tokens, shape.num_kv_heads, 16});
      OwnedTensor o(kF32, {shape.batch, tokens, shape.num_q_heads, 16});
      switch (random.Below(5)) {
        case 0:
        case 1: {
          const bool fits = batch == shape.batch && k.abi.dtype.bits == 32 &&
                            v.shape[1] == tokens && tokens >= 1 &&
                            length + tokens <= shape.capacity;
          EXPECT_EQ(heed_session_append(rig.session, &q.abi, &k.abi, &v.abi),
                    fits ? HEED_OK : HEED_INVALID_ARGUMENT);
          if (fits) length += tokens;
          break;
        }
        case 2:
          static_cast<void>(heed_session_decode(rig.session));
          break;
        case 3:
          static_cast<void>(heed_session_output(rig.session, &o.abi));
          break;
        default: {
          const std::int64_t target = random.Below(shape.capacity + 2) - 1;
          const bool fits = target >= 0 && target <= length;
          EXPECT_EQ(heed_session_truncate(rig.session, target),
                    fits ? HEED_OK : HEED_INVALID_ARGUMENT);
          if (fits) length = target;
        }
      }
      ASSERT_EQ(rig.Query().length_tokens, length) << "seed " << seed << ", call " << call;
    }
  }
}

}  // namespace
}  // namespace heed::test
