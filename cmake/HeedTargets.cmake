# Compile settings shared by every target of the project.
add_library(heed_settings INTERFACE)
target_compile_features(heed_settings INTERFACE cxx_std_20)
# -ffp-contract=off: a*b+c means two roundings everywhere, so that results do not depend on the
# compiler's choice; kernels ask for fused operations by intrinsics.
target_compile_options(heed_settings INTERFACE -Wall -Wextra -Wshadow -Wvla
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -ffp-contract=off)
# g++ 12 sees overlaps in std::string's own operator+ (GCC bug 105329).
target_compile_options(heed_settings INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
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
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEED_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${HEED_CCACHE})
endif()

# Counts of the test cases inside each binary end up here, one <test>.xml each.
set(HEED_TEST_RESULTS_DIR "${PROJECT_BINARY_DIR}/test-results")

# What ./dev test builds in its sanitizer folders.
add_custom_target(heed_tests_quick)
add_custom_target(heed_tests_threads)

# heed_add_test(<name> SOURCES <files...> [INTERNAL] [LABELS <labels...>])
# A GoogleTest binary registered with CTest as one test. INTERNAL links the library's objects
# statically so that the test sees internals; otherwise it links libheed.so and sees include/ only.
# Labels with a meaning for ./dev test:
#   threads   also runs in the thread-sanitizer build
#   slow      left out of the fast tier's sanitizer builds; every other test is labelled quick
function(heed_add_test name)
  cmake_parse_arguments(ARG "INTERNAL" "" "SOURCES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE heed_settings GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(ARG_INTERNAL)
    target_link_libraries(${name} PRIVATE heed_internal)
  else()
    target_link_libraries(${name} PRIVATE heed)
  endif()
  if(NOT "slow" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS quick)
    add_dependencies(heed_tests_quick ${name})
  endif()
  if("threads" IN_LIST ARG_LABELS)
    add_dependencies(heed_tests_threads ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT_MODIFICATION
    "GTEST_OUTPUT=set:xml:${HEED_TEST_RESULTS_DIR}/${name}.xml")
endfunction()
