// Numbers that more than one formula needs.
#ifndef HEED_DEVICE_CONSTANTS_H_
#define HEED_DEVICE_CONSTANTS_H_

namespace heed::device {

inline constexpr float kInfinity = __builtin_bit_cast(float, 0x7F800000u);
inline constexpr double kLn2 = 0.693147180559945309417;
inline constexpr double kLog2E = 1.44269504088896340736;

}  // namespace heed::device

#endif  // HEED_DEVICE_CONSTANTS_H_
