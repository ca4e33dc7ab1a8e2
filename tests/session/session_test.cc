// Sessions on the CPU: their outputs against the oracle over every token they were given, whatever
// the order of calls.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "session/session_rig.h"

namespace heed::test {
namespace {

struct Kind {
  const char* name;
  SessionShape shape;
};

const Kind kKinds[] = {
    {"one head", {1, 1, 1, 64, 64, 40, Element::kF32, HEED_KV_PLAIN}},
    {"groups", {3, 6, 2, 64, 64, 64, Element::kF32, HEED_KV_PLAIN}},
    {"odd head dims", {2, 4, 4, 40, 72, 64, Element::kF32, HEED_KV_PLAIN}},
    {"fp16", {2, 8, 2, 128, 128, 64, Element::kF16, HEED_KV_PLAIN}},
    {"bf16", {1, 14, 2, 64, 64, 64, Element::kBF16, HEED_KV_PLAIN}},
};

// Prefill, then single tokens, one step of several, and an append without a decode call.
void RunSteps(SessionRig& rig) {
  ASSERT_EQ(rig.Create(), HEED_OK) << heed_last_error();
  const std::int64_t steps[] = {9, 1, 1, 4, 1};
  for (const std::int64_t tokens : steps) {
    const Element given = tokens == 4 ? rig.shape.element : Element::kF32;
    ASSERT_EQ(rig.Append(tokens, given), HEED_OK) << heed_last_error();
    if (tokens == 4) {  // its queries are never asked for
      ASSERT_EQ(rig.Append(2), HEED_OK) << heed_last_error();
    }
    ASSERT_EQ(heed_session_decode(rig.session), HEED_OK) << heed_last_error();
    ASSERT_EQ(heed_session_synchronize(rig.session), HEED_OK) << heed_last_error();
    SCOPED_TRACE(rig.NumTokens());
    ExpectNear(rig.Output(Element::kF32), rig.Expected(), rig.Bound());
    EXPECT_EQ(rig.Output(rig.shape.element), rig.Output(Element::kF32));
    EXPECT_EQ(rig.Query().length_tokens, rig.NumTokens());
  }
}

TEST(Session, AttendsToEveryToken) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    SessionRig rig(kind.shape);
    RunSteps(rig);
  }
}

TEST(Session, ScoreRules) {
  OwnedTensor slopes(kF32, {6});
  OwnedTensor sinks(kF32, {6});
  for (int head = 0; head < 6; ++head) {
    slopes.data<float>()[head] = 0.1f * static_cast<float>(head);
    sinks.data<float>()[head] = static_cast<float>(head) - 3.0f;
  }
  for (int rule = 0; rule < 4; ++rule) {
    SCOPED_TRACE(rule);
    SessionRig rig(kKinds[1].shape);
    rig.score.causal = HEED_CAUSAL_ON;
    if (rule == 1) rig.score.window_left = 3;
    if (rule == 2) rig.score.softcap = 5.0;
    if (rule == 3 && kOnCuda) continue;  // these tensors are on the host
    if (rule == 3) {
      rig.score.alibi_slopes = &slopes.abi;
      rig.score.sinks = &sinks.abi;
    }
    RunSteps(rig);
  }
}

// The structs may go once the session is there.
TEST(Session, KeepsItsConfiguration) {
  SessionRig rig(kKinds[1].shape);
  {
    const double scale = -0.25;
    heed_score_args_t* score = new heed_score_args_t HEED_SCORE_ARGS_INIT;
    score->scale = &scale;
    score->causal = HEED_CAUSAL_ON;
    rig.config.score = score;
    ASSERT_EQ(rig.Create(), HEED_OK) << heed_last_error();
    std::memset(static_cast<void*>(score), 0xFF, sizeof(*score));
    delete score;
  }
  const double scale = -0.25;
  rig.score.scale = &scale;
  rig.score.causal = HEED_CAUSAL_ON;
  ASSERT_EQ(rig.Append(5), HEED_OK);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  ExpectNear(rig.Output(Element::kF32), rig.Expected(), rig.Bound());
}

// Quantised caches: the oracle's session holds the same bytes.
TEST(Session, QuantisedCaches) {
  for (const heed_kv_format_t format :
       {HEED_KV_INT8, HEED_KV_FP8_E4M3, HEED_KV_INT4, HEED_KV_Q8_0, HEED_KV_Q4_0}) {
    SCOPED_TRACE(static_cast<int>(format));
    if (kOnCuda && (format == HEED_KV_Q8_0 || format == HEED_KV_Q4_0)) continue;
    SessionShape shape = kKinds[1].shape;
    shape.format = format;
    SessionRig plain(kKinds[1].shape, 5);
    SessionRig rig(shape, 5);
    SessionRig oracle(shape, 5);
    oracle.exec.backend = HEED_BACKEND_REFERENCE;
    oracle.config.device = {HEED_DEVICE_CPU, 0};
    for (SessionRig* each : {&plain, &rig, &oracle}) {
      ASSERT_EQ(each->Create(), HEED_OK) << heed_last_error();
      for (const std::int64_t tokens : {7, 2, 1}) {
        ASSERT_EQ(each->Append(tokens), HEED_OK) << heed_last_error();
      }
      ASSERT_EQ(heed_session_decode(each->session), HEED_OK) << heed_last_error();
    }
    const std::vector<double> got = rig.Output(Element::kF32);
    ExpectNear(got, oracle.Output(Element::kF32), rig.Bound());
    EXPECT_NE(got, plain.Output(Element::kF32));
    EXPECT_LT(rig.Query().device_bytes, plain.Query().device_bytes);
  }
}

TEST(Session, DecodeRepeats) {
  SessionRig rig(kKinds[1].shape);
  ASSERT_EQ(rig.Create(), HEED_OK);
  ASSERT_EQ(rig.Append(6), HEED_OK);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  const std::vector<double> first = rig.Output(Element::kF32);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  EXPECT_EQ(rig.Output(Element::kF32), first);
  EXPECT_EQ(rig.Query().length_tokens, 6);
}

TEST(Session, TruncatesToAnyLength) {
  SessionRig rig(kKinds[1].shape);
  ASSERT_EQ(rig.Create(), HEED_OK);
  ASSERT_EQ(rig.Append(6), HEED_OK);
  ASSERT_EQ(rig.Append(3), HEED_OK);
  ASSERT_EQ(heed_session_truncate(rig.session, 6), HEED_OK);  // what is staged goes
  rig.Forget(1);
  EXPECT_EQ(rig.Query().length_tokens, 6);
  ASSERT_EQ(rig.Append(2), HEED_OK);
  ASSERT_EQ(heed_session_truncate(rig.session, 8), HEED_OK);  // what is staged stays
  ASSERT_EQ(rig.Append(1), HEED_OK);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  ExpectNear(rig.Output(Element::kF32), rig.Expected(), rig.Bound());
  ASSERT_EQ(heed_session_truncate(rig.session, 0), HEED_OK);
  rig.Forget(3);
  ASSERT_EQ(rig.Append(4), HEED_OK);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  ExpectNear(rig.Output(Element::kF32), rig.Expected(), rig.Bound());
}

TEST(Session, FillsToItsCapacity) {
  SessionRig rig(kKinds[0].shape);
  ASSERT_EQ(rig.Create(), HEED_OK);
  while (rig.NumTokens() < rig.shape.capacity) ASSERT_EQ(rig.Append(1), HEED_OK);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK) << heed_last_error();
  ExpectNear(rig.Output(Element::kF32), rig.Expected(), rig.Bound());
  const heed_session_info_t info = rig.Query();
  EXPECT_EQ(info.length_tokens, 40);
  EXPECT_EQ(info.capacity_tokens, 40);
}

TEST(Session, SessionsAreIndependent) {
  constexpr int kSessions = 4;
  std::vector<std::thread> threads;
  for (int n = 0; n < kSessions; ++n) {
    threads.emplace_back([n] {
      SessionRig rig(kKinds[n].shape, static_cast<std::uint64_t>(n) + 10);
      RunSteps(rig);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The session's calls take turns: no token is lost, and the cache holds all of them.
TEST(Session, ManyThreadsOnOneSession) {
  SessionRig rig({1, 1, 1, 8, 8, 400, Element::kF32, HEED_KV_PLAIN});
  ASSERT_EQ(rig.Create(), HEED_OK);
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&rig] {
      OwnedTensor rows(kF32, {1, 1, 1, 8});
      for (int token = 0; token < 100; ++token) {
        EXPECT_EQ(heed_session_append(rig.session, &rows.abi, &rows.abi, &rows.abi), HEED_OK);
        EXPECT_EQ(heed_session_decode(rig.session), HEED_OK);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rig.Query().length_tokens, 400);
}

TEST(Session, StridedAndBroadcastInput) {
  SessionRig rig({2, 2, 1, 16, 16, 8, Element::kF16, HEED_KV_PLAIN});
  ASSERT_EQ(rig.Create(), HEED_OK);
  ASSERT_EQ(rig.Append(2), HEED_OK);
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  const std::vector<double> compact = rig.Output(Element::kF32);
  ASSERT_EQ(heed_session_truncate(rig.session, 0), HEED_OK);
  // The same rows, with a gap behind each head.
  const auto spread = [](OwnedTensor& rows) {
    OwnedTensor wide(kF32, {rows.shape[0], rows.shape[1], rows.shape[2], rows.shape[3] + 5}, 0xFF);
    const std::int64_t num_rows = rows.shape[0] * rows.shape[1] * rows.shape[2];
    for (std::int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(rows.data<float>() + row * rows.shape[3], rows.shape[3],
                  wide.data<float>() + row * (rows.shape[3] + 5));
    }
    wide.shape[3] = rows.shape[3];
    return wide;
  };
  OwnedTensor q = spread(rig.q.back()), k = spread(rig.k.back()), v = spread(rig.v.back());
  ASSERT_EQ(heed_session_append(rig.session, &q.abi, &k.abi, &v.abi), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  EXPECT_EQ(rig.Output(Element::kF32), compact);
  // One value row for all: every output is that row.
  ASSERT_EQ(heed_session_truncate(rig.session, 0), HEED_OK);
  v.strides[0] = v.strides[1] = 0;
  ASSERT_EQ(heed_session_append(rig.session, &q.abi, &k.abi, &v.abi), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_session_decode(rig.session), HEED_OK);
  const std::vector<double> same = rig.Output(Element::kF32);
  for (std::size_t n = 0; n < same.size(); ++n) {
    EXPECT_NEAR(same[n], v.data<float>()[n % 16], 2e-3 * std::abs(v.data<float>()[n % 16]));
  }
}

struct CountingAllocator {
  std::int64_t live = 0, total = 0;

  static void* Allocate(void* context, std::size_t size_bytes, void*) {
    auto* self = static_cast<CountingAllocator*>(context);
    ++self->live;
    ++self->total;
    return std::aligned_alloc(64, (size_bytes + 63) / 64 * 64);
  }
  static void Release(void* context, void* block, std::size_t, void*) {
    --static_cast<CountingAllocator*>(context)->live;
    std::free(block);
  }
};

TEST(Session, TakesMemoryFromTheCallersAllocator) {
  if (kOnCuda) GTEST_SKIP() << "the allocator is the host's";
  CountingAllocator counter;
  {
    SessionRig rig(kKinds[1].shape);
    {
      heed_allocator_t allocator = {sizeof(heed_allocator_t), &counter, CountingAllocator::Allocate,
                                    CountingAllocator::Release};
      rig.exec.allocator = &allocator;
      ASSERT_EQ(rig.Create(), HEED_OK) << heed_last_error();
      std::memset(static_cast<void*>(&allocator), 0, sizeof(allocator));
    }
    EXPECT_EQ(counter.live, 2);
    ASSERT_EQ(rig.Append(3), HEED_OK);  // a larger step
    EXPECT_EQ(counter.live, 2);
    ASSERT_EQ(heed_session_decode(rig.session), HEED_OK) << heed_last_error();
    rig.exec.allocator = nullptr;
    ExpectNear(rig.Output(Element::kF32), rig.Expected(), rig.Bound());
  }
  EXPECT_EQ(counter.live, 0);
  EXPECT_GE(counter.total, 3);
}

}  // namespace
}  // namespace heed::test
