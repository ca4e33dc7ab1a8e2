# Compile settings shared by every target of the project.
add_library(heed_settings INTERFACE)
target_compile_features(heed_settings INTERFACE cxx_std_20)
# -ffp-contract=off: a*b+c means two roundings everywhere, so that results do not depend on the
# compiler's choice; kernels ask for fused operations by intrinsics.
target_compile_options(heed_settings INTERFACE -Wall -Wextra -Wshadow -Wvla
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -ffp-contract=off)
# g++ 12 sees overlaps and overflows inside std::string's and std::vector's own code, at different
# places with every optimisation level (GCC bugs 105329, 105651, 105545).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(heed_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow> $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>)
endif()
if(HEED_WARNINGS_AS_ERRORS)
  target_compile_options(heed_settings INTERFACE -Werror)
endif()
if(HEED_SANITIZE)
  target_compile_options(heed_settings INTERFACE -fsanitize=${HEED_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(heed_settings INTERFACE -fsanitize=${HEED_SANITIZE})
endif()

find_program(HEED_CCACHE ccache)
if(HEED_CCACHE)
  # Precompiled headers are cached only when their macros and times may be trusted.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${HEED_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()
