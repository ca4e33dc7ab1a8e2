// exec arguments and structs that no call accepts.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "api/forward_call.h"

namespace heed::test {
namespace {

void ExpectInvalid(const std::function<void(ForwardCall&)>& spoil, const std::string& fragment) {
  ExpectRefused(spoil, HEED_INVALID_ARGUMENT, fragment);
}

template <class Enum>
void SetRaw(Enum& field, std::int32_t value) {
  std::memcpy(&field, &value, sizeof(value));
}

TEST(StructSize, TooSmall) {
  ExpectInvalid([](ForwardCall& call) { call.args.struct_size = 0; },
                "args.struct_size = 0: must be sizeof(heed_forward_args_t)");
  ExpectInvalid(
      [](ForwardCall& call) { call.args.struct_size = offsetof(heed_forward_args_t, exec); },
      "args.struct_size");
  // int8 came later.
  ExpectAccepted(
      [](ForwardCall& call) { call.args.struct_size = offsetof(heed_forward_args_t, int8); });
  ExpectInvalid([](ForwardCall& call) { call.score.struct_size = 8; }, "score.struct_size = 8");
  ExpectInvalid([](ForwardCall& call) { call.varlen.struct_size = 1; }, "varlen.struct_size = 1");
  ExpectInvalid([](ForwardCall& call) { call.exec.struct_size = 3; }, "exec.struct_size = 3");
  ExpectInvalid(
      [](ForwardCall& call) {
        call.Page();
        call.paging.struct_size = 8;
      },
      "paging.struct_size = 8");
}

TEST(StructSize, UninitialisedMemory) {
  ExpectInvalid([](ForwardCall& call) { call.args.struct_size = 0xCCCCCCCCCCCCCCCCu; },
                "args.struct_size = 14757395258967641292");
}

// A caller of a later release: what it adds must be neutral, that is zero.
TEST(StructSize, LargerStructs) {
  struct Later {
    heed_exec_args_t known;
    std::uint64_t added;
  };
  ForwardCall call;
  Later later = {HEED_EXEC_ARGS_INIT, 0};
  later.known.struct_size = sizeof(Later);
  call.args.exec = &later.known;
  EXPECT_EQ(call.Run(), HEED_OK) << heed_last_error();
  later.added = 1;
  ExpectRefused(call, HEED_INVALID_ARGUMENT, "is set, but heed 0.1.0 knows only the first");
}

TEST(BadExec, Enumerators) {
  ExpectInvalid([](ForwardCall& call) { SetRaw(call.exec.backend, 5); },
                "exec.backend = 5: must be from 0 to 4");
  ExpectInvalid([](ForwardCall& call) { SetRaw(call.exec.deterministic, 2); },
                "exec.deterministic = 2");
  ExpectInvalid([](ForwardCall& call) { SetRaw(call.exec.fixed_split, -1); },
                "exec.fixed_split = -1");
  ExpectInvalid([](ForwardCall& call) { SetRaw(call.exec.forbid_slower, 7); },
                "exec.forbid_slower = 7");
  ExpectInvalid([](ForwardCall& call) { call.exec.backend = HEED_BACKEND_CUDA; },
                "exec.backend = cuda: cannot read tensors on cpu");
}

TEST(BadExec, StreamAndThreads) {
  int stream = 0;
  ExpectInvalid([&](ForwardCall& call) { call.exec.stream = &stream; },
                "exec.stream: must be NULL for tensors on the CPU");
  ExpectInvalid([](ForwardCall& call) { call.exec.num_threads = -1; }, "exec.num_threads = -1");
  ExpectInvalid([](ForwardCall& call) { call.exec.num_threads = 1 << 30; },
                "exec.num_threads = 1073741824");
  ExpectInvalid([&](ForwardCall& call) { call.exec.parallel_for_context = &stream; },
                "exec.parallel_for = NULL: exec.parallel_for_context is set");
}

struct AlignedBlock {
  explicit AlignedBlock(std::size_t size_bytes)
      : data(static_cast<unsigned char*>(std::aligned_alloc(256, (size_bytes / 256 + 1) * 256))) {}
  ~AlignedBlock() { std::free(data); }
  AlignedBlock(const AlignedBlock&) = delete;
  AlignedBlock& operator=(const AlignedBlock&) = delete;
  unsigned char* data;
};

std::size_t NeededBytes(const ForwardCall& call) {
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
  return plan.workspace_bytes;
}

TEST(Workspace, TheCallersBlock) {
  const std::size_t needed_bytes = NeededBytes(ForwardCall());
  ASSERT_GT(needed_bytes, 0u);
  const AlignedBlock block(needed_bytes + 64);
  const auto with = [&block](std::size_t first_byte, std::size_t size_bytes) {
    return [&block, first_byte, size_bytes](ForwardCall& call) {
      call.exec.workspace = block.data + first_byte;
      call.exec.workspace_bytes = size_bytes;
    };
  };
  ExpectAccepted(with(0, needed_bytes));
  ExpectInvalid(with(0, needed_bytes - 1),
                "exec.workspace_bytes = " + std::to_string(needed_bytes - 1) +
                    ": must be at least " + std::to_string(needed_bytes));
  ExpectInvalid(with(8, needed_bytes), "must be aligned to 64 bytes");
  ExpectInvalid([](ForwardCall& call) { call.exec.workspace_bytes = 64; },
                "exec.workspace = NULL: exec.workspace_bytes = 64 needs a block");
}

TEST(Workspace, MustNotOverlapTensors) {
  const AlignedBlock block(1 << 20);
  ExpectInvalid(
      [&](ForwardCall& call) {
        call.exec.workspace = block.data;
        call.exec.workspace_bytes = 1 << 20;
        call.k.abi.data = block.data + 4096;
      },
      "exec.workspace: must not overlap k");
}

struct CountingAllocator {
  static void* Allocate(void* context, std::size_t size_bytes, void*) {
    auto* self = static_cast<CountingAllocator*>(context);
    self->allocated_bytes = size_bytes;
    ++self->live_blocks;
    return self->block != nullptr ? self->block->data : nullptr;
  }
  static void Release(void* context, void*, std::size_t size_bytes, void*) {
    auto* self = static_cast<CountingAllocator*>(context);
    EXPECT_EQ(size_bytes, self->allocated_bytes);
    --self->live_blocks;
  }
  heed_allocator_t abi() { return {sizeof(heed_allocator_t), this, Allocate, Release}; }

  const AlignedBlock* block = nullptr;
  std::size_t allocated_bytes = 0;
  int live_blocks = 0;
};

TEST(Workspace, FromTheCallersAllocator) {
  const AlignedBlock block(NeededBytes(ForwardCall()));
  CountingAllocator counting{&block};
  const heed_allocator_t allocator = counting.abi();
  ExpectAccepted([&](ForwardCall& call) { call.exec.allocator = &allocator; });
  EXPECT_EQ(counting.allocated_bytes, NeededBytes(ForwardCall()));
  EXPECT_EQ(counting.live_blocks, 0);

  counting.block = nullptr;
  ExpectRefused([&](ForwardCall& call) { call.exec.allocator = &allocator; }, HEED_OUT_OF_MEMORY,
                "exec.allocator gave no workspace of");
}

TEST(BadExec, Allocators) {
  CountingAllocator counting;
  heed_allocator_t allocator = counting.abi();
  const auto use = [&allocator](ForwardCall& call) { call.exec.allocator = &allocator; };
  allocator.allocate = nullptr;
  ExpectInvalid(use, "exec.allocator.allocate = NULL: is required");
  allocator = counting.abi();
  allocator.release = nullptr;
  ExpectInvalid(use, "exec.allocator.release = NULL: is required");
  allocator = counting.abi();
  allocator.struct_size = 4;
  ExpectInvalid(use, "exec.allocator.struct_size = 4");
}

// What the header promises is what is asked: 64 bytes on the CPU.
TEST(Workspace, AlignmentOfTheCallersAllocator) {
  const AlignedBlock block(NeededBytes(ForwardCall()) + 256);
  struct Shifted {
    unsigned char* data;
    int live_blocks;
  } shifted = {nullptr, 0};
  heed_allocator_t allocator = {sizeof(heed_allocator_t), &shifted,
                                [](void* context, std::size_t, void*) -> void* {
                                  ++static_cast<Shifted*>(context)->live_blocks;
                                  return static_cast<Shifted*>(context)->data;
                                },
                                [](void* context, void*, std::size_t, void*) {
                                  --static_cast<Shifted*>(context)->live_blocks;
                                }};
  const auto use = [&](ForwardCall& call) { call.exec.allocator = &allocator; };
  shifted.data = block.data + 64;
  ExpectAccepted(use);
  shifted.data = block.data + 32;
  ExpectInvalid(use, "its block must be aligned to 64 bytes");
  EXPECT_EQ(shifted.live_blocks, 0);
}

TEST(BadExec, Kernels) {
  ExpectInvalid([](ForwardCall& call) { call.exec.kernel = ""; },
                "exec.kernel = \"\": is empty; give a kernel id, or NULL for the planner's choice");
  ExpectInvalid([](ForwardCall& call) { call.exec.kernel = "cpu.generic.forward.f32"; },
                "exec.kernel = cpu.generic.forward.f32: no such kernel row; close ids: "
                "cpu.generic.forward.f32.d576");
  ExpectInvalid([](ForwardCall& call) { call.exec.kernel = "cuda."; }, " more");
  ExpectInvalid([](ForwardCall& call) { call.exec.kernel = "nope"; },
                "exec.kernel = nope: no such kernel row; `heed info` lists them");
  ExpectInvalid([](ForwardCall& call) { call.exec.kernel = "cuda."; }, "close ids: cuda.");
  ExpectRefused(
      [](ForwardCall& call) { call.exec.kernel = "cpu.generic.forward.bf16.d576.q12k128"; },
      HEED_UNSUPPORTED, "cannot run forward on backend cpu, f32, head dim 8: takes bf16");
  ExpectInvalid([](ForwardCall& call) { call.exec.kernel = "cpu.any.combine.any.dany.q1k1"; },
                "is a row of combine, not of forward");
}

TEST(BadExec, HeadDimAboveEveryRow) {
  const auto widen = [](ForwardCall& call) {
    call.q = OwnedTensor(kF32, {2, 3, 4, 577});
    call.k = OwnedTensor(kF32, {2, 5, 2, 577});
  };
  ExpectRefused(widen, HEED_UNSUPPORTED, "head dim 577 is above its 576");
  ExpectAccepted([&](ForwardCall& call) {
    widen(call);
    call.exec.backend = HEED_BACKEND_REFERENCE;
  });
}

}  // namespace
}  // namespace heed::test
