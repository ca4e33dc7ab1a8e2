// heed_plan, heed_explain, heed_prepare, heed_info and heed_check_device_errors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "api/cuda_driver.h"
#include "api/forward_call.h"

namespace heed::test {
namespace {

// Sets an environment variable for the life of the object.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    setenv(name, value, /*overwrite=*/1);
  }
  ~ScopedEnvironment() { unsetenv(name_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
};

std::string Explain(heed_op_t op, const void* args) {
  std::size_t needed_bytes = 0;
  EXPECT_EQ(heed_explain(op, args, nullptr, 0, &needed_bytes), HEED_OK) << heed_last_error();
  std::string text(needed_bytes, '\0');
  EXPECT_EQ(heed_explain(op, args, text.data(), text.size(), nullptr), HEED_OK);
  EXPECT_EQ(text.back(), '\0');
  if (!text.empty()) text.pop_back();
  return text;
}

bool Contains(const std::string& text, const std::string& fragment) {
  return text.find(fragment) != std::string::npos;
}

TEST(Plan, NeedsNoTensorData) {
  ForwardCall call;
  for (OwnedTensor* tensor : {&call.q, &call.k, &call.v, &call.o, &call.lse}) {
    tensor->abi.data = nullptr;
  }
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(std::string(plan.kernel_id).rfind("cpu.", 0), 0u) << plan.kernel_id;
  // 2 sequences x 2 KV heads; the 6 rows of G = 2 heads x 3 queries fit one tile.
  EXPECT_EQ(plan.num_tasks, 4);
  EXPECT_EQ(plan.num_splits, 1);
  EXPECT_GT(plan.tile_q_rows, 0);
  EXPECT_GT(plan.tile_kv_rows, 0);
  EXPECT_EQ(heed_prepare(HEED_OP_FORWARD, &call.args), HEED_OK) << heed_last_error();
}

TEST(Plan, BadArguments) {
  ForwardCall call;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  EXPECT_EQ(heed_plan(HEED_OP_FORWARD, nullptr, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "args = NULL: is required");
  EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "plan = NULL: is required");
  plan.struct_size = 12;
  EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_TRUE(Contains(heed_last_error(), "plan.struct_size = 12")) << heed_last_error();
}

TEST(Plan, ForcedKernelIsTheOneThatRuns) {
  const char* id = "cpu.generic.forward.f32.d576.q12k128";
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ForwardCall call;
  call.exec.kernel = id;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_STREQ(plan.kernel_id, id);
  call.exec.kernel = nullptr;
  const ScopedEnvironment force("HEED_FORCE_KERNEL", id);
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_STREQ(plan.kernel_id, id);
  EXPECT_EQ(call.Run(), HEED_OK) << heed_last_error();
  // The oracle is another backend, so the forced row does not speak for it.
  call.exec.backend = HEED_BACKEND_REFERENCE;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_STREQ(plan.kernel_id, "reference.double.forward.any.dany.q1k1");
}

TEST(Plan, CudaFamilyThatNamesNothing) {
  ForwardCall call;
  for (heed_tensor_t* tensor : {&call.q.abi, &call.k.abi, &call.v.abi, &call.o.abi}) {
    tensor->device = {HEED_DEVICE_CUDA, 0};
  }
  call.args.lse = nullptr;
  const ScopedEnvironment force("HEED_CUDA_FAMILY", "sm81");
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_TRUE(Contains(heed_last_error(),
                       "HEED_CUDA_FAMILY = sm81: unknown family; must be one of sm75, sm80, sm90"))
      << heed_last_error();
}

TEST(Plan, EnvironmentThatNamesNothing) {
  {
    const ScopedEnvironment force("HEED_FORCE_KERNEL", "cpu.nothing");
    ExpectRefused([](ForwardCall&) {}, HEED_INVALID_ARGUMENT, "HEED_FORCE_KERNEL = cpu.nothing");
  }
  const ScopedEnvironment force("HEED_CPU_TARGET", "mmx");
  ExpectRefused(
      [](ForwardCall&) {}, HEED_INVALID_ARGUMENT,
      "HEED_CPU_TARGET = mmx: unknown target; must be one of generic, avx2, avxvnni, avx512, "
      "avx512bf16, amx");
}

TEST(Plan, NumberOfThreadsFromTheEnvironment) {
  ForwardCall call;
  const auto workspace_bytes = [&call] {
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
    return plan.workspace_bytes;
  };
  call.exec.num_threads = 1;
  const std::size_t one_thread_bytes = workspace_bytes();
  ASSERT_GT(one_thread_bytes, 0u);
  call.exec.num_threads = 0;
  for (const int num_threads : {1, 3, 4}) {  // 4 tasks
    const ScopedEnvironment threads("HEED_NUM_THREADS", std::to_string(num_threads).c_str());
    EXPECT_EQ(workspace_bytes(), static_cast<std::size_t>(num_threads) * one_thread_bytes);
  }
  const ScopedEnvironment most("HEED_NUM_THREADS", "4096");
  EXPECT_EQ(workspace_bytes(), 4 * one_thread_bytes);
  for (const char* bad : {"0", "-5", "abc", "4x", " 4", "4097", "99999", "99999999999999999999"}) {
    const ScopedEnvironment threads("HEED_NUM_THREADS", bad);
    ExpectRefused(
        [](ForwardCall&) {}, HEED_INVALID_ARGUMENT,
        "HEED_NUM_THREADS = " + std::string(bad) + ": must be a whole number from 1 to 4096");
  }
}

TEST(Plan, ForcedTarget) {
  const ScopedEnvironment force("HEED_CPU_TARGET", "generic");
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  const ForwardCall call;
  ASSERT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_STREQ(plan.kernel_id, "cpu.generic.forward.f32.d576.q12k128");
}

TEST(Explain, SaysWhatAndWhyNot) {
  ForwardCall call;
  call.score.causal = HEED_CAUSAL_ON;
  const std::string text = Explain(HEED_OP_FORWARD, &call.args);
  EXPECT_TRUE(Contains(text, "kernel: cpu.")) << text;
  EXPECT_TRUE(Contains(text, "causal (bottom-right)")) << text;
  EXPECT_TRUE(Contains(text, "workspace: ")) << text;
  EXPECT_TRUE(Contains(text, "cpu.generic.forward.bf16.d576.q12k128: takes bf16")) << text;
}

TEST(Explain, SucceedsWhenNoRowFits) {
  ForwardCall call;
  call.q = OwnedTensor(kF32, {2, 3, 4, 600});
  call.k = OwnedTensor(kF32, {2, 5, 2, 600});
  const std::string text = Explain(HEED_OP_FORWARD, &call.args);
  EXPECT_TRUE(Contains(text, "kernel: none: HEED_UNSUPPORTED: no kernel row for forward")) << text;
  EXPECT_TRUE(Contains(text, "head dim 600 is above its 576")) << text;
}

TEST(Explain, Buffers) {
  const ForwardCall call;
  const std::string full = Explain(HEED_OP_FORWARD, &call.args);
  char cut[10] = "........";
  EXPECT_EQ(heed_explain(HEED_OP_FORWARD, &call.args, cut, sizeof(cut), nullptr), HEED_OK);
  EXPECT_EQ(std::string(cut), full.substr(0, sizeof(cut) - 1));
  EXPECT_EQ(heed_explain(HEED_OP_FORWARD, &call.args, nullptr, 5, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "text = NULL: capacity_bytes = 5 needs a buffer");
}

std::string Info(heed_info_format_t format) {
  std::string text(1 << 16, '\0');
  std::size_t needed_bytes = 0;
  EXPECT_EQ(heed_info(format, text.data(), text.size(), &needed_bytes), HEED_OK);
  EXPECT_GT(needed_bytes, 0u);
  text.resize(needed_bytes - 1);
  return text;
}

TEST(Info, NamesBackendsTargetsAndRows) {
  const std::string text = Info(HEED_INFO_TEXT);
  for (const char* fragment : {heed_version(), "  webgpu     ", "generic    available",
                               "usable cores", "cpu.generic.forward.f32.d576.q12k128",
                               "cuda.sm80.forward.f16.", "webgpu.wgsl.forward.f32.d576.q64k64"}) {
    EXPECT_TRUE(Contains(text, fragment)) << fragment << "\n" << text;
  }
  const std::string json = Info(HEED_INFO_JSON);
  for (const char* fragment : {"\"version\": \"", "\"name\": \"webgpu\", \"available\": ",
                               "\"webgpu_adapter\": ", "\"usable_cores\": "}) {
    EXPECT_TRUE(Contains(json, fragment)) << fragment << "\n" << json;
  }
}

TEST(Info, NamesTheRemedyWithoutADriver) {
  if (HasCudaDriver()) GTEST_SKIP() << "this machine has a CUDA driver";
  const std::string text = Info(HEED_INFO_TEXT);
  const std::size_t line = text.find("  cuda       unavailable: libcuda.so.1 ");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_TRUE(Contains(text.substr(line, text.find('\n', line) - line), kCudaRemedy)) << text;
  const std::string json = Info(HEED_INFO_JSON);
  EXPECT_TRUE(Contains(json, "\"name\": \"cuda\", \"available\": false, \"reason\": \"")) << json;
  EXPECT_TRUE(Contains(json, "\"cuda_devices\": []")) << json;
}

TEST(Plan, SpinTimeOfTheThreadPool) {
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  const ForwardCall call;
  for (const char* good : {"0", "50", "1000000"}) {
    const ScopedEnvironment spin("HEED_SPIN_US", good);
    EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  }
  for (const char* bad : {"-1", "20us", "1.5", "1000001", "99999999999999999999"}) {
    const ScopedEnvironment spin("HEED_SPIN_US", bad);
    const std::string message = "HEED_SPIN_US = " + std::string(bad) +
                                ": must be a whole number of microseconds from 0 to 1000000";
    ExpectRefused([](ForwardCall&) {}, HEED_INVALID_ARGUMENT, message);
    EXPECT_TRUE(Contains(Info(HEED_INFO_TEXT), message));
  }
}

TEST(Info, ShowsWhatTheEnvironmentForces) {
  const ScopedEnvironment target("HEED_CPU_TARGET", "generic");
  const ScopedEnvironment threads("HEED_NUM_THREADS", "3");
  const std::string text = Info(HEED_INFO_TEXT);
  EXPECT_TRUE(Contains(text, "HEED_CPU_TARGET forces generic\n")) << text;
  EXPECT_TRUE(Contains(text, "HEED_NUM_THREADS sets 3 threads\n")) << text;
  EXPECT_TRUE(Contains(Info(HEED_INFO_JSON),
                       "\"forced_threads\": 3, \"forced_target\": \"generic\", "
                       "\"environment_errors\": []"));
}

TEST(Info, ShowsWhatTheEnvironmentGotWrong) {
  const ScopedEnvironment target("HEED_CPU_TARGET", "foo");
  const ScopedEnvironment threads("HEED_NUM_THREADS", "abc");
  const std::string text = Info(HEED_INFO_TEXT);
  EXPECT_FALSE(Contains(text, "forces")) << text;
  for (const char* fragment : {"HEED_CPU_TARGET = foo: unknown target; must be one of generic, ",
                               "HEED_NUM_THREADS = abc: must be a whole number from 1 to 4096"}) {
    EXPECT_TRUE(Contains(text, fragment)) << text;
    EXPECT_TRUE(Contains(Info(HEED_INFO_JSON), fragment)) << Info(HEED_INFO_JSON);
  }
  EXPECT_TRUE(Contains(Info(HEED_INFO_JSON),
                       "\"forced_threads\": null, \"forced_target\": null, "
                       "\"environment_errors\": [\"HEED_CPU_TARGET"));
}

TEST(DeviceErrors, CudaNeedsADriver) {
  if (HasCudaDriver()) GTEST_SKIP() << "this machine has a CUDA driver";
  heed_device_errors_t errors = HEED_DEVICE_ERRORS_INIT;
  EXPECT_EQ(heed_check_device_errors({HEED_DEVICE_CUDA, 0}, &errors), HEED_UNAVAILABLE);
  EXPECT_TRUE(Contains(heed_last_error(), kCudaRemedy)) << heed_last_error();
}

TEST(DeviceErrors, WebgpuHasNoCounters) {
  heed_device_errors_t errors = HEED_DEVICE_ERRORS_INIT;
  EXPECT_EQ(heed_check_device_errors({HEED_DEVICE_WEBGPU, 1}, &errors), HEED_UNAVAILABLE);
  EXPECT_TRUE(Contains(heed_last_error(), "WebGPU devices have no error counters"))
      << heed_last_error();
}

TEST(DeviceErrors, CpuHasNone) {
  heed_device_errors_t errors = {sizeof(errors), 5, 6};
  ASSERT_EQ(heed_check_device_errors({HEED_DEVICE_CPU, 0}, &errors), HEED_OK);
  EXPECT_EQ(errors.num_bad_lengths, 0);
  EXPECT_EQ(errors.num_bad_block_entries, 0);
  EXPECT_EQ(heed_check_device_errors({HEED_DEVICE_CPU, 0}, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(heed_check_device_errors({99, 0}, &errors), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "device.device_type = 99: is not a heed_device_type_t");
  EXPECT_EQ(heed_check_device_errors({HEED_DEVICE_CPU, 1}, &errors), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "device.device_id = 1: must be 0 on the CPU");
}

}  // namespace
}  // namespace heed::test
