// Reading the argument structs of the C ABI: struct_size versions, enumerators, required pointers.
#ifndef HEED_CORE_ABI_STRUCT_H_
#define HEED_CORE_ABI_STRUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/status.h"
#include "heed/heed.h"

namespace heed::core {

// Sizes that a struct of one type may have.
struct AbiVersion {
  const char* type_name;
  std::size_t first_release_bytes;  // up to the last field that its first release had
  std::size_t known_bytes;          // of this build
};

// Specialised for every argument struct: its version and neutral value.
template <class T>
struct AbiStruct;

#define HEED_ABI_STRUCT(type, last_field_of_first_release, init)                                 \
  template <>                                                                                    \
  struct AbiStruct<type> {                                                                       \
    static constexpr AbiVersion kVersion = {                                                     \
        #type,                                                                                   \
        offsetof(type, last_field_of_first_release) + sizeof(type::last_field_of_first_release), \
        sizeof(type)};                                                                           \
    static type Neutral() { return init; }                                                       \
  };

HEED_ABI_STRUCT(heed_score_args_t, dropout_rng, HEED_SCORE_ARGS_INIT)
HEED_ABI_STRUCT(heed_varlen_args_t, max_seqlen_kv, HEED_VARLEN_ARGS_INIT)
HEED_ABI_STRUCT(heed_paging_args_t, block_table, HEED_PAGING_ARGS_INIT)
HEED_ABI_STRUCT(heed_exec_args_t, parallel_for_context, HEED_EXEC_ARGS_INIT)
HEED_ABI_STRUCT(heed_forward_args_t, exec, HEED_FORWARD_ARGS_INIT)
HEED_ABI_STRUCT(heed_int8_args_t, values, HEED_INT8_ARGS_INIT)
HEED_ABI_STRUCT(heed_backward_args_t, exec, HEED_BACKWARD_ARGS_INIT)
HEED_ABI_STRUCT(heed_kv_quant_args_t, v_scales, HEED_KV_QUANT_ARGS_INIT)
HEED_ABI_STRUCT(heed_decode_args_t, exec, HEED_DECODE_ARGS_INIT)
HEED_ABI_STRUCT(heed_combine_args_t, exec, HEED_COMBINE_ARGS_INIT)
HEED_ABI_STRUCT(heed_quantize_kv_args_t, exec, HEED_QUANTIZE_KV_ARGS_INIT)
HEED_ABI_STRUCT(heed_dropout_mask_args_t, exec, HEED_DROPOUT_MASK_ARGS_INIT)
HEED_ABI_STRUCT(heed_session_config_t, exec, HEED_SESSION_CONFIG_INIT)
HEED_ABI_STRUCT(heed_session_info_t, device_bytes, HEED_SESSION_INFO_INIT)
HEED_ABI_STRUCT(heed_plan_info_t, is_slower_substitute, HEED_PLAN_INFO_INIT)
HEED_ABI_STRUCT(heed_device_errors_t, num_bad_block_entries, HEED_DEVICE_ERRORS_INIT)
HEED_ABI_STRUCT(heed_pack_args_t, progress_context, HEED_PACK_ARGS_INIT)
HEED_ABI_STRUCT(heed_tune_options_t, report_context, HEED_TUNE_OPTIONS_INIT)

// heed_allocator_t has no neutral value: its functions are required.
template <>
struct AbiStruct<heed_allocator_t> {
  static constexpr AbiVersion kVersion = {
      "heed_allocator_t", offsetof(heed_allocator_t, release) + sizeof(heed_allocator_t::release),
      sizeof(heed_allocator_t)};
  static heed_allocator_t Neutral() {
    return {sizeof(heed_allocator_t), nullptr, nullptr, nullptr};
  }
};

#undef HEED_ABI_STRUCT

// Checks the struct_size that *source starts with: not below the first release, and any bytes that
// this build does not know are 0. Gives the struct's size in *struct_bytes.
Status CheckStructSize(const char* name, const void* source, const AbiVersion& version,
                       std::size_t* struct_bytes);

// Copies an optional struct; fields that an older caller's struct lacks, and an absent struct, read
// as neutral.
template <class T>
Status ReadStruct(const char* name, const T* source, T* copy) {
  *copy = AbiStruct<T>::Neutral();
  if (source == nullptr) return {};
  std::size_t struct_bytes = 0;
  HEED_RETURN_IF_ERROR(CheckStructSize(name, source, AbiStruct<T>::kVersion, &struct_bytes));
  std::memcpy(copy, source, std::min(struct_bytes, sizeof(T)));
  copy->struct_size = sizeof(T);
  return {};
}

Status RequirePointer(const char* name, const void* pointer);

template <class T>
Status ReadRequiredStruct(const char* name, const T* source, T* copy) {
  HEED_RETURN_IF_ERROR(RequirePointer(name, source));
  return ReadStruct(name, source, copy);
}

// Fills the caller's output struct, whose struct_size says how much of it exists, with `value`.
template <class T>
Status WriteStruct(const char* name, const T& value, T* target) {
  HEED_RETURN_IF_ERROR(RequirePointer(name, target));
  std::size_t struct_bytes = 0;
  HEED_RETURN_IF_ERROR(CheckStructSize(name, target, AbiStruct<T>::kVersion, &struct_bytes));
  std::memcpy(target, &value, std::min(struct_bytes, sizeof(T)));
  target->struct_size = struct_bytes;
  return {};
}

// The bits of an enumerator as they came over the ABI, whatever their value.
template <class Enum>
std::int32_t RawValue(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(std::int32_t));
  std::int32_t value = 0;
  std::memcpy(&value, &field, sizeof(value));
  return value;
}

// Requires: the enumerators are 0 .. last.
Status CheckEnum(const char* name, std::int32_t value, std::int32_t last);

}  // namespace heed::core

#endif  // HEED_CORE_ABI_STRUCT_H_
