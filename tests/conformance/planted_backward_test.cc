// The backward checker must fail when a fault is planted. The kernel here is the backward pass in
// double, rounded once to the inputs' type, with one fault each time; without a fault it must pass.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "support/backward_checker.h"
#include "support/plain_backward.h"

namespace heed::test {
namespace {

using Fault = BackwardFault;

BackwardCase Parse(const std::string& id) {
  std::string error;
  const auto parsed = ParseBackwardCaseId(id, &error);
  EXPECT_TRUE(parsed.has_value()) << id << ": " << error;
  return parsed.value_or(BackwardCase{});
}

// The checker's complaint, "" when it found nothing.
std::string FailureOf(const std::string& id, Fault fault) {
  BackwardChecker checker(Parse(id));
  EXPECT_EQ(checker.oracle_failure(), "");
  const std::string failure =
      checker.Check(PlainBackwardEngine(checker.instance(), PlainPrecision::kDouble, fault))
          .failure;
  EXPECT_EQ(checker.num_out_of_range(), 0);
  return failure;
}

// In every element type: passes without the fault, and complains about `gradient` with it.
void ExpectSeen(Fault fault, const std::string& tokens, const char* gradient) {
  for (const char* element : {"f32", "f16", "bf16"}) {
    const std::string id = "bwd:" + tokens + ":" + element + ":s1";
    EXPECT_EQ(FailureOf(id, Fault::kNone), "");
    const std::string failure = FailureOf(id, fault);
    EXPECT_NE(failure.find(std::string("\n  ") + gradient), std::string::npos)
        << id << ": the planted fault gave: " << failure;
  }
}

constexpr const char* kPlainShape = "b2:hq2:hkv2:sq40:skv56:d32:dv24";

TEST(PlantedBackward, DeltaLeftOut) { ExpectSeen(Fault::kDeltaLeftOut, kPlainShape, "d"); }

TEST(PlantedBackward, DeltaLeftOutShowsInSinksAlone) {
  // One key and a sink: dS is small where the sink is large, d_sinks is not.
  ExpectSeen(Fault::kDeltaLeftOut, "b1:hq4:hkv4:sq40:skv1:d8:dv8:sink:d-sinks", "d");
}

TEST(PlantedBackward, KeyBlockLeftOutOfDq) {
  ExpectSeen(Fault::kKeyBlockLeftOutOfDq, "b1:hq2:hkv2:sq40:skv300:d32:dv24", "dq[");
}

TEST(PlantedBackward, QueryBlockLeftOut) {
  ExpectSeen(Fault::kQueryBlockLeftOut, "b1:hq2:hkv2:sq300:skv40:d32:dv24", "d");
}

TEST(PlantedBackward, MaskOffByOne) {
  ExpectSeen(Fault::kMaskOffByOne, "b1:hq2:hkv2:sq60:skv60:d32:dv24:causal", "d");
  ExpectSeen(Fault::kMaskOffByOne, "b1:hq2:hkv2:sq60:skv60:d32:dv24:win20,5", "d");
}

TEST(PlantedBackward, SinkLeftOut) {
  ExpectSeen(Fault::kSinkLeftOut, "b2:hq4:hkv2:sq40:skv56:d32:dv24:sink", "d");
}

TEST(PlantedBackward, DropoutFactorLeftOut) {
  ExpectSeen(Fault::kDropoutFactorLeftOut, "b1:hq2:hkv2:sq40:skv56:d32:dv24:drop0.1", "d");
}

TEST(PlantedBackward, LseGradientSign) {
  ExpectSeen(Fault::kLseGradientSign, "b1:hq2:hkv2:sq40:skv56:d32:dv24:d-lse", "d");
}

TEST(PlantedBackward, LseGradientSignInSinks) {
  // Rows without a key: d_sinks is the sum of d_lse, and no other gradient is touched.
  ExpectSeen(Fault::kLseGradientSign, "b1:hq2:hkv2:sq40:skv0:d8:dv8:sink:d-lse:d-sinks",
             "d_sinks[");
}

TEST(PlantedBackward, NanOfHiddenSlotLeaks) {
  // Keys past the diagonal of every row.
  ExpectSeen(Fault::kHiddenByMultiplying,
             "b1:hq2:hkv2:sq20:skv40:d16:dv16:causal:top-left:dead-poison", "dq[");
  // Rows that see no key.
  ExpectSeen(Fault::kHiddenByMultiplying, "b1:hq2:hkv2:sq40:skv20:d16:dv16:causal:dead-poison",
             "dk[");
}

TEST(PlantedBackward, GroupHeadsNotSummed) {
  ExpectSeen(Fault::kGroupHeadsNotSummed, "b1:hq8:hkv2:sq40:skv56:d32:dv24", "d");
}

TEST(PlantedBackward, ScaleLeftOutOfDk) {
  ExpectSeen(Fault::kScaleLeftOutOfDk, kPlainShape, "dk[");
}

TEST(PlantedBackward, SoftcapSlopeLeftOut) {
  ExpectSeen(Fault::kSoftcapSlopeLeftOut, "b1:hq2:hkv2:sq40:skv56:d32:dv24:cap2", "d");
}

TEST(PlantedBackward, BiasGradientOfOneBatch) {
  ExpectSeen(Fault::kBiasGradientOfOneBatch,
             "b3:hq2:hkv2:sq40:skv56:d32:dv24:bias-1hqk-f32:d-bias-f32", "d_bias[");
}

// Packed, grouped, masked, with everything at once.
TEST(PlantedBackward, FaultsShowAmongAllFeatures) {
  const std::string tokens =
      "b3:hq4:hkv2:sq50:skv70:d40:dv24:cap20:alibi-h:bias-1h1k-f32:drop0.25:sink:causal:varlen-q:"
      "varlen-kv:strides-padded:workspace:d-bias-f32:d-lse:d-sinks";
  for (const Fault fault :
       {Fault::kDeltaLeftOut, Fault::kMaskOffByOne, Fault::kSinkLeftOut,
        Fault::kDropoutFactorLeftOut, Fault::kLseGradientSign, Fault::kGroupHeadsNotSummed}) {
    SCOPED_TRACE(static_cast<int>(fault));
    ExpectSeen(fault, tokens, "d");
  }
}

using Spoil = std::function<void(const heed_backward_args_t&)>;

constexpr const char* kCase =
    "bwd:b2:hq4:hkv2:sq9:skv21:d8:dv5:f32:causal:seqused-kv:workspace:strides-padded:s1";

// Right gradients, of which one thing is then spoiled.
std::string FailureWhenSpoiled(const Spoil& spoil, const char* id = kCase) {
  BackwardChecker checker(Parse(id));
  BackwardEngine engine = PlainBackwardEngine(checker.instance(), PlainPrecision::kDouble);
  engine.backward = [right = engine.backward, spoil](const heed_backward_args_t* args) {
    const heed_status_t status = right(args);
    spoil(*args);
    return status;
  };
  return checker.Check(engine).failure;
}

#define EXPECT_FAILURE(text, ...)                                                          \
  do {                                                                                     \
    const std::string failure = FailureWhenSpoiled(__VA_ARGS__);                           \
    EXPECT_NE(failure.find(text), std::string::npos) << "planted fault gave: " << failure; \
  } while (false)

float* FirstOf(const heed_tensor_t* tensor) { return static_cast<float*>(tensor->data); }

TEST(PlantedBackward, UnspoiledEnginePasses) {
  EXPECT_EQ(FailureWhenSpoiled([](const heed_backward_args_t&) {}), "");
}

TEST(PlantedBackward, ElementLeftUnwritten) {
  EXPECT_FAILURE("dk[0, 0, 0, 0] = nan", [](const heed_backward_args_t& args) {
    std::memset(args.dk->data, 0xff, sizeof(float));
  });
}

// Key 20 stands past the diagonal of every row: its gradients are exactly 0.
TEST(PlantedBackward, GradientOfUnseenKeyNotZero) {
  EXPECT_FAILURE(
      "dv[0, 20, 0, 0] = 1e-30, expected 0, bound 0",
      [](const heed_backward_args_t& args) {
        const heed_tensor_t& dv = *args.dv;
        FirstOf(&dv)[20 * dv.strides[1]] = 1e-30f;
      },
      "bwd:b1:hq1:hkv1:sq9:skv21:d8:dv5:f32:causal:top-left:s1");
}

TEST(PlantedBackward, WriteIntoAGapBetweenRows) {
  EXPECT_FAILURE("dq: byte", [](const heed_backward_args_t& args) {
    FirstOf(args.dq)[args.dq->shape[3]] = 0.0f;
  });
}

TEST(PlantedBackward, WriteBeforeTheBeginning) {
  EXPECT_FAILURE("dv: byte -4",
                 [](const heed_backward_args_t& args) { FirstOf(args.dv)[-1] = 0.0f; });
}

TEST(PlantedBackward, InputChanged) {
  EXPECT_FAILURE("o: byte 0",
                 [](const heed_backward_args_t& args) { FirstOf(args.forward->o)[0] += 1.0f; });
  EXPECT_FAILURE("d_o: byte 0",
                 [](const heed_backward_args_t& args) { FirstOf(args.d_o)[0] += 1.0f; });
  EXPECT_FAILURE("k: byte 0",
                 [](const heed_backward_args_t& args) { FirstOf(args.forward->k)[0] += 1.0f; });
}

TEST(PlantedBackward, WorkspaceOverrun) {
  EXPECT_FAILURE("outside the workspace, at byte 64", [](const heed_backward_args_t& args) {
    ASSERT_NE(args.exec->workspace, nullptr);
    static_cast<char*>(args.exec->workspace)[args.exec->workspace_bytes] = 0;
  });
}

// The last bit of one element differs from run to run: within every bound, but not deterministic.
TEST(PlantedBackward, OtherBitsInTheSecondRun) {
  constexpr const char* kDeterministic = "bwd:b1:hq1:hkv1:sq4:skv4:d4:dv4:f32:deterministic:s1";
  EXPECT_EQ(FailureWhenSpoiled([](const heed_backward_args_t&) {}, kDeterministic), "");
  int num_runs = 0;
  EXPECT_FAILURE(
      "a second run gave other bits",
      [&num_runs](const heed_backward_args_t& args) {
        if (++num_runs == 2) *reinterpret_cast<std::uint32_t*>(args.dq->data) ^= 1u;
      },
      kDeterministic);
}

TEST(PlantedBackward, ReportNamesCaseKernelIndexValuesAndBound) {
  const std::string failure =
      FailureWhenSpoiled([](const heed_backward_args_t& args) { FirstOf(args.dv)[0] = 1e9f; });
  for (const char* part : {kCase, "plain", "dv[0, 0, 0, 0] = 1e+09", "expected", "bound"}) {
    EXPECT_NE(failure.find(part), std::string::npos) << part << " is missing in: " << failure;
  }
}

}  // namespace
}  // namespace heed::test
