// heed for C++20: views, options with defaults, RAII and exceptions over the C ABI of heed.h.
//
//   heed::forward({.q = {q.data(), {1, 512, 8, 64}}, .k = ..., .v = ..., .o = ...,
//                  .score = {.causal = true}});
//
// Every operation has two forms: try_verb(...) returns a heed_status_t and never throws; verb(...)
// throws heed::Error. Without exceptions (-fno-exceptions, or HEED_NO_EXCEPTIONS defined) only the
// try_ forms exist. Shapes, units, requirements and errors are those of the C function.
#ifndef HEED_HEED_HPP_
#define HEED_HEED_HPP_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "heed/heed.h"

#if !defined(HEED_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define HEED_NO_EXCEPTIONS
#endif
#ifndef HEED_NO_EXCEPTIONS
#include <stdexcept>
#endif

namespace heed {

// ---- Errors ---------------------------------------------------------------------------------

#ifndef HEED_NO_EXCEPTIONS
// A failed call; what() is its heed_last_error().
class Error : public std::runtime_error {
 public:
  explicit Error(heed_status_t status) : std::runtime_error(heed_last_error()), status_(status) {}
  heed_status_t status() const noexcept { return status_; }

 private:
  heed_status_t status_;
};

// Throws Error unless status is HEED_OK.
inline void check(heed_status_t status) {
  if (status != HEED_OK) throw Error(status);
}
#endif

// ---- Tensors --------------------------------------------------------------------------------

// Bits of 16-bit floats, for callers without such a type of their own.
enum class Half : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

// The heed_dtype_t of an element type; undefined for types that no tensor may have.
template <class T>
inline constexpr heed_dtype_t dtype_of = T::not_an_element_type;
template <>
inline constexpr heed_dtype_t dtype_of<double> = {HEED_DTYPE_FLOAT, 64, 1};
template <>
inline constexpr heed_dtype_t dtype_of<float> = {HEED_DTYPE_FLOAT, 32, 1};
template <>
inline constexpr heed_dtype_t dtype_of<Half> = {HEED_DTYPE_FLOAT, 16, 1};
template <>
inline constexpr heed_dtype_t dtype_of<BFloat16> = {HEED_DTYPE_BFLOAT, 16, 1};
template <>
inline constexpr heed_dtype_t dtype_of<std::int8_t> = {HEED_DTYPE_INT, 8, 1};
template <>
inline constexpr heed_dtype_t dtype_of<std::uint8_t> = {HEED_DTYPE_UINT, 8, 1};
template <>
inline constexpr heed_dtype_t dtype_of<bool> = {HEED_DTYPE_BOOL, 8, 1};
template <>
inline constexpr heed_dtype_t dtype_of<std::int32_t> = {HEED_DTYPE_INT, 32, 1};
template <>
inline constexpr heed_dtype_t dtype_of<std::int64_t> = {HEED_DTYPE_INT, 64, 1};
template <>
inline constexpr heed_dtype_t dtype_of<std::uint64_t> = {HEED_DTYPE_UINT, 64, 1};

// A view of memory that others own, with its own shape and strides; copies freely. Default =
// absent. Data given as const is only ever read: pass it for inputs.
class Tensor {
 public:
  static constexpr std::size_t kMaxRank = 5;
  using Extents = std::initializer_list<std::int64_t>;

  Tensor() = default;

  // Strides in elements; none = compact row-major. More than kMaxRank axes give a tensor of that
  // ndim without a shape, which every call refuses.
  Tensor(const void* data, heed_dtype_t dtype, Extents shape, Extents strides = {},
         heed_device_t device = {HEED_DEVICE_CPU, 0}) {
    abi_.data = const_cast<void*>(data);
    abi_.dtype = dtype;
    abi_.device = device;
    abi_.ndim = static_cast<std::int32_t>(shape.size());
    has_shape_ = shape.size() <= kMaxRank;
    has_strides_ = has_shape_ && strides.size() == shape.size() && strides.size() > 0;
    std::size_t axis = 0;
    if (has_shape_) {
      for (const std::int64_t extent : shape) shape_[axis++] = extent;
    }
    axis = 0;
    if (has_strides_) {
      for (const std::int64_t stride : strides) strides_[axis++] = stride;
    }
    is_present_ = true;
    point_at_own_arrays();
  }

  template <class T>
  requires(!std::same_as<std::remove_const_t<T>, void>)
      Tensor(T* data, Extents shape, Extents strides = {})
      : Tensor(data, dtype_of<std::remove_const_t<T>>, shape, strides) {}

  // Compact. A span with fewer elements than the shape gives a tensor without data, which every
  // call refuses.
  template <class T>
  Tensor(std::span<T> data, Extents shape)
      : Tensor(covers(data.size(), shape) ? data.data() : nullptr, shape) {}

  Tensor(const Tensor& other) { *this = other; }
  Tensor& operator=(const Tensor& other) {
    abi_ = other.abi_;
    shape_ = other.shape_;
    strides_ = other.strides_;
    has_shape_ = other.has_shape_;
    has_strides_ = other.has_strides_;
    is_present_ = other.is_present_;
    point_at_own_arrays();
    return *this;
  }

  bool present() const noexcept { return is_present_; }
  // Null when absent; valid while this object lives.
  const heed_tensor_t* abi() const noexcept { return is_present_ ? &abi_ : nullptr; }

 private:
  static bool covers(std::size_t num_elems, Extents shape) {
    std::uint64_t needed = 1;
    for (const std::int64_t extent : shape) {
      if (extent < 0 || (extent > 0 && needed > UINT64_MAX / static_cast<std::uint64_t>(extent))) {
        return false;
      }
      needed *= static_cast<std::uint64_t>(extent);
    }
    return needed <= num_elems;
  }
  void point_at_own_arrays() noexcept {
    abi_.shape = has_shape_ ? shape_.data() : nullptr;
    abi_.strides = has_strides_ ? strides_.data() : nullptr;
  }

  heed_tensor_t abi_ = {};
  std::array<std::int64_t, kMaxRank> shape_ = {};
  std::array<std::int64_t, kMaxRank> strides_ = {};
  bool has_shape_ = false;
  bool has_strides_ = false;
  bool is_present_ = false;
};

// ---- Options ----------------------------------------------------------------------------------

// heed_score_args_t; every default is neutral.
struct Score {
  std::optional<double> scale = std::nullopt;  // nullopt = 1 / sqrt(D)
  double softcap = 0.0;
  bool causal = false;
  heed_alignment_t alignment = HEED_ALIGN_BOTTOM_RIGHT;
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  Tensor alibi_slopes = {};
  Tensor bias = {};
  Tensor mask = {};
  Tensor sinks = {};
  double dropout_p = 0.0;
  std::uint64_t dropout_seed = 0;
  std::uint64_t dropout_offset = 0;
  Tensor dropout_rng = {};

  // The C struct; points into this object.
  heed_score_args_t abi() const noexcept {
    return {sizeof(heed_score_args_t),
            scale ? &*scale : nullptr,
            softcap,
            causal ? HEED_CAUSAL_ON : HEED_CAUSAL_OFF,
            alignment,
            window_left,
            window_right,
            alibi_slopes.abi(),
            bias.abi(),
            mask.abi(),
            sinks.abi(),
            dropout_p,
            dropout_seed,
            dropout_offset,
            dropout_rng.abi()};
  }
};

// heed_varlen_args_t; absent tensors = dense.
struct Varlen {
  Tensor cu_seqlens_q = {};
  Tensor cu_seqlens_kv = {};
  Tensor seqused_q = {};
  Tensor seqused_kv = {};
  std::int64_t max_seqlen_q = 0;
  std::int64_t max_seqlen_kv = 0;

  heed_varlen_args_t abi() const noexcept {
    return {sizeof(heed_varlen_args_t), cu_seqlens_q.abi(), cu_seqlens_kv.abi(), seqused_q.abi(),
            seqused_kv.abi(),           max_seqlen_q,       max_seqlen_kv};
  }
};

// heed_int8_args_t; absent scales count as 1.
struct Int8 {
  Tensor q_scales = {};
  Tensor k_scales = {};
  Tensor v_scales = {};
  std::int64_t q_block_rows = 0;
  std::int64_t k_block_rows = 0;
  std::int64_t v_block_rows = 0;
  heed_int8_softmax_t softmax = HEED_INT8_SOFTMAX_FLOAT;
  heed_int8_values_t values = HEED_INT8_VALUES_F32;

  heed_int8_args_t abi() const noexcept {
    return {sizeof(heed_int8_args_t),
            q_scales.abi(),
            k_scales.abi(),
            v_scales.abi(),
            q_block_rows,
            k_block_rows,
            v_block_rows,
            softmax,
            values};
  }
};

// heed_exec_args_t with its neutral value.
struct Exec : heed_exec_args_t {
  Exec() noexcept : heed_exec_args_t HEED_EXEC_ARGS_INIT {}
  explicit Exec(heed_backend_t wanted) noexcept : Exec() { backend = wanted; }
};

// Scratch memory for exec.workspace, aligned for the CPU backend.
class Workspace {
 public:
  Workspace() = default;
  // data() is null when there is not enough memory.
  explicit Workspace(std::size_t size_bytes) noexcept
      : data_(::operator new(size_bytes, kAlignment, std::nothrow)), size_bytes_(size_bytes) {}
  Workspace(Workspace&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Workspace& operator=(Workspace&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Workspace() { ::operator delete(data_, kAlignment); }

  void* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return data_ != nullptr ? size_bytes_ : 0; }
  // Must outlive every call that uses exec; one call at a time.
  void lend_to(Exec* exec) const noexcept {
    exec->workspace = data();
    exec->workspace_bytes = size_bytes();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// ---- Forward and backward ---------------------------------------------------------------------

// heed_forward_args_t. q, k, v and o are required; a block_table makes k and v paged pools.
struct Forward {
  Tensor q = {};
  Tensor k = {};
  Tensor v = {};
  Tensor o = {};
  Tensor lse = {};
  Score score = {};
  Varlen varlen = {};
  Tensor block_table = {};
  Exec exec = {};
  std::optional<Int8> int8 = {};  // when q, k and v are int8
};

// heed_backward_args_t. forward.exec is not used.
struct Backward {
  Forward forward = {};
  Tensor d_o = {};
  Tensor d_lse = {};
  Tensor dq = {};
  Tensor dk = {};
  Tensor dv = {};
  Tensor d_bias = {};
  Tensor d_sinks = {};
  Exec exec = {};
};

namespace detail {

// The C structs of one call; valid while the C++ struct it was made from lives.
class ForwardCall {
 public:
  explicit ForwardCall(const Forward& from) noexcept
      : score_(from.score.abi()),
        varlen_(from.varlen.abi()),
        paging_{sizeof(heed_paging_args_t), from.block_table.abi()},
        int8_(from.int8 ? from.int8->abi() : heed_int8_args_t HEED_INT8_ARGS_INIT),
        args_{sizeof(heed_forward_args_t),
              from.q.abi(),
              from.k.abi(),
              from.v.abi(),
              from.o.abi(),
              from.lse.abi(),
              &score_,
              &varlen_,
              from.block_table.present() ? &paging_ : nullptr,
              &from.exec,
              from.int8 ? &int8_ : nullptr} {}
  ForwardCall(const ForwardCall&) = delete;
  ForwardCall& operator=(const ForwardCall&) = delete;

  static constexpr heed_op_t kOp = HEED_OP_FORWARD;
  const heed_forward_args_t* args() const noexcept { return &args_; }

 private:
  heed_score_args_t score_;
  heed_varlen_args_t varlen_;
  heed_paging_args_t paging_;
  heed_int8_args_t int8_;
  heed_forward_args_t args_;
};

class BackwardCall {
 public:
  explicit BackwardCall(const Backward& from) noexcept
      : forward_(from.forward),
        args_{sizeof(heed_backward_args_t),
              forward_.args(),
              from.d_o.abi(),
              from.d_lse.abi(),
              from.dq.abi(),
              from.dk.abi(),
              from.dv.abi(),
              from.d_bias.abi(),
              from.d_sinks.abi(),
              &from.exec} {}

  static constexpr heed_op_t kOp = HEED_OP_BACKWARD;
  const heed_backward_args_t* args() const noexcept { return &args_; }

 private:
  ForwardCall forward_;
  heed_backward_args_t args_;
};

inline ForwardCall lower(const Forward& call) noexcept { return ForwardCall(call); }
inline BackwardCall lower(const Backward& call) noexcept { return BackwardCall(call); }

// read(text, capacity_bytes, needed_bytes) as heed_explain and heed_info take them.
template <class Read>
heed_status_t read_text(Read read, std::string* text) {
  std::size_t needed_bytes = 0;
  if (const heed_status_t status = read(nullptr, 0, &needed_bytes); status != HEED_OK) {
    return status;
  }
  text->assign(needed_bytes, '\0');
  const heed_status_t status = read(text->data(), text->size(), &needed_bytes);
  if (!text->empty()) text->pop_back();
  return status;
}

}  // namespace detail

[[nodiscard]] inline heed_status_t try_forward(const Forward& call) noexcept {
  return heed_forward(detail::lower(call).args());
}
[[nodiscard]] inline heed_status_t try_backward(const Backward& call) noexcept {
  return heed_backward(detail::lower(call).args());
}

// Call = Forward or Backward. *plan is filled on HEED_OK.
template <class Call>
[[nodiscard]] heed_status_t try_plan(const Call& call, heed_plan_info_t* plan) noexcept {
  const auto lowered = detail::lower(call);
  *plan = HEED_PLAN_INFO_INIT;
  return heed_plan(lowered.kOp, lowered.args(), plan);
}

// Call = Forward or Backward. Throws only std::bad_alloc, for the string.
template <class Call>
[[nodiscard]] heed_status_t try_explain(const Call& call, std::string* text) {
  const auto lowered = detail::lower(call);
  return detail::read_text(
      [&lowered](char* buffer, std::size_t capacity_bytes, std::size_t* needed_bytes) {
        return heed_explain(lowered.kOp, lowered.args(), buffer, capacity_bytes, needed_bytes);
      },
      text);
}

[[nodiscard]] inline heed_status_t try_info(heed_info_format_t format, std::string* text) {
  return detail::read_text(
      [format](char* buffer, std::size_t capacity_bytes, std::size_t* needed_bytes) {
        return heed_info(format, buffer, capacity_bytes, needed_bytes);
      },
      text);
}

// ---- Sessions ---------------------------------------------------------------------------------

// heed_session_config_t with its neutral value.
struct SessionConfig : heed_session_config_t {
  SessionConfig() noexcept : heed_session_config_t HEED_SESSION_CONFIG_INIT {}
};

// Owns a heed_session_t. Default = none.
class Session {
 public:
  Session() = default;
  Session(Session&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Session() { static_cast<void>(heed_session_destroy(handle_)); }

  // Replaces *session on success.
  [[nodiscard]] static heed_status_t try_create(const SessionConfig& config,
                                                Session* session) noexcept {
    Session created;
    const heed_status_t status = heed_session_create(&config, &created.handle_);
    if (status == HEED_OK) std::swap(session->handle_, created.handle_);
    return status;
  }
#ifndef HEED_NO_EXCEPTIONS
  explicit Session(const SessionConfig& config) { check(try_create(config, this)); }
#endif

  heed_session_t* handle() const noexcept { return handle_; }

 private:
  heed_session_t* handle_ = nullptr;
};

// ---- Throwing forms ---------------------------------------------------------------------------

#ifndef HEED_NO_EXCEPTIONS
inline void forward(const Forward& call) { check(try_forward(call)); }
inline void backward(const Backward& call) { check(try_backward(call)); }

template <class Call>
heed_plan_info_t plan(const Call& call) {
  heed_plan_info_t info;
  check(try_plan(call, &info));
  return info;
}

template <class Call>
std::string explain(const Call& call) {
  std::string text;
  check(try_explain(call, &text));
  return text;
}

inline std::string info(heed_info_format_t format = HEED_INFO_TEXT) {
  std::string text;
  check(try_info(format, &text));
  return text;
}
#endif

}  // namespace heed

#endif  // HEED_HEED_HPP_
