// One session: memory that stays on the device, and the order in which its calls may come.
//
//   create -> [empty] -append-> [staged] -decode-> [decoded] -decode, output-> [decoded]
//   append is allowed in every state and leads to [staged]; truncate leads to [empty].
//
// Tokens of an append reach the cache with the decode call, in one launch; or, where another append
// or a truncation comes first, by a decode call that looks at one key only.
#ifndef HEED_SESSION_SESSION_H_
#define HEED_SESSION_SESSION_H_

#include <memory>

#include "core/session_device.h"
#include "session/held_args.h"
#include "session/step_call.h"

namespace heed::session {

// The decode operation, which the API layer brings.
struct DecodeCalls {
  // What `run` would say before it runs, with its kernels loaded and what it needs.
  core::Status (*prepare)(const heed_decode_args_t* args, core::StepNeeds* needs);
  core::Status (*run)(const heed_decode_args_t* args);
};

class Session {
 public:
  // Requires: `config` made from `source` by core::ReadSessionConfig.
  Session(const core::SessionConfig& config, const heed_session_config_t& source,
          DecodeCalls calls);

  // What the planner says of a first step, for which its kernels are loaded.
  core::Status PrepareFirstStep();
  // Takes memory. Called once, before anything that follows.
  core::Status Start(std::unique_ptr<core::SessionDevice> device);

  // With what it points at kept by the session.
  const core::ExecOptions& exec() const { return config_.exec; }

  core::Status Append(const heed_tensor_t* q, const heed_tensor_t* k, const heed_tensor_t* v);
  core::Status Decode();
  core::Status Output(const heed_tensor_t* o);
  core::Status Synchronize();
  core::Status Truncate(std::int64_t length_tokens);
  core::Status Query(heed_session_info_t* info) const;

 private:
  struct Buffer {
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
  };
  struct Inputs {
    core::TensorInfo q, k, v;
  };

  std::int64_t length_tokens() const { return cached_tokens_ + uncached_tokens_; }
  core::Status ReadInputs(const heed_tensor_t* q, const heed_tensor_t* k, const heed_tensor_t* v,
                          Inputs* inputs) const;
  core::Status CheckRows(const core::TensorInfo& rows, std::int64_t num_heads,
                         std::int64_t head_dim) const;
  // Makes room for a step of so many tokens.
  core::Status OpenStep(std::int64_t num_tokens);
  core::Status Upload(const Inputs& inputs);
  // What a step's decode call is made of: calls of equal keys differ in the contents of memory.
  struct StepKey {
    std::int64_t num_tokens = 0;
    std::byte* step_block = nullptr;
    bool is_in_place = false;  // on the host
    bool operator==(const StepKey&) const = default;
  };

  core::Status Run(const heed_score_args_t& score);
  // The decode call of the staged queries, replayed where that is asked for.
  core::Status RunStep();
  StepBlocks StagedBlocks() const;
  // Records the step's call for replays, where the device can.
  core::Status Record(const StepKey& key);
  // At least so large; what it held is lost.
  core::Status Ensure(std::size_t size_bytes, Buffer* buffer);
  // Writes what is staged into the cache.
  core::Status Flush();

  core::SessionConfig config_;
  HeldArgs held_;
  const DecodeCalls calls_;
  std::unique_ptr<core::SessionDevice> device_;
  StepBlocks blocks_;
  Buffer step_;   // where blocks_.step lies
  Buffer spare_;  // of the other step, where uploads run ahead
  std::int64_t cached_tokens_ = 0;
  std::int64_t uncached_tokens_ = 0;  // staged, and not yet in the cache
  std::int64_t staged_tokens_ = 0;    // whose queries the next decode takes; 0 = none
  bool has_output_ = false;
  bool steps_may_stay_ = false;  // those of one token, on the host
  // With use_graph. Recorded when a second step of the same kind follows the first, so that prompts
  // of any length cost nothing.
  StepKey last_step_;
  StepKey recorded_step_;
  bool can_record_ = true;
  Buffer workspace_;  // of the recorded call
};

}  // namespace heed::session

#endif  // HEED_SESSION_SESSION_H_
