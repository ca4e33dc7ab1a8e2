# GoogleTest, and heed_add_test().

# The system's package, or, when cross-compiling, the sources that Debian's googletest installs.
if(CMAKE_CROSSCOMPILING)
  set(INSTALL_GTEST OFF)
  set(BUILD_GMOCK OFF)
  add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  if(NOT TARGET GTest::gtest)
    add_library(GTest::gtest ALIAS gtest)
    add_library(GTest::gtest_main ALIAS gtest_main)
  endif()
else()
  find_package(GTest REQUIRED)
endif()

# Counts of the test cases inside each binary end up here, one <test>.xml each.
set(HEED_TEST_RESULTS_DIR "${PROJECT_BINARY_DIR}/test-results")

# Test code is compiled lightly: most of its time goes into GoogleTest's headers, read once a kind.
# public tests see include/ only; the address sanitizer watches the memory that they lend to the
# library without instrumenting the tests themselves (the thread sanitizer must see both sides).
# internal tests compile headers of the library, and are instrumented as it is.
foreach(kind public internal)
  add_library(heed_${kind}_test_settings INTERFACE)
  target_link_libraries(heed_${kind}_test_settings INTERFACE
    heed_settings GTest::gtest GTest::gtest_main)
  target_compile_options(heed_${kind}_test_settings INTERFACE $<$<CONFIG:Release>:-O1>)
endforeach()
if(HEED_SANITIZE MATCHES "address")
  # The macro still tells them that their process is watched.
  target_compile_options(heed_public_test_settings INTERFACE -O0 -fno-sanitize=all)
  target_compile_definitions(heed_public_test_settings INTERFACE __SANITIZE_ADDRESS__=1)
endif()
file(CONFIGURE OUTPUT pch.cc CONTENT "")
file(CONFIGURE OUTPUT pch.c CONTENT "")
foreach(kind public internal)
  # The C header is there because CMake wants one per language of the targets that reuse these.
  add_library(heed_${kind}_test_pch OBJECT
    ${CMAKE_CURRENT_BINARY_DIR}/pch.cc ${CMAKE_CURRENT_BINARY_DIR}/pch.c)
  target_link_libraries(heed_${kind}_test_pch PRIVATE heed_${kind}_test_settings)
  target_precompile_headers(heed_${kind}_test_pch PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:<gtest/gtest.h$<ANGLE-R>>
    $<$<COMPILE_LANGUAGE:C>:<stddef.h$<ANGLE-R>>)
endforeach()

# heed_add_test(<name> SOURCES <files...> [INTERNAL] [LABELS <labels...>])
# A GoogleTest binary registered with CTest as one test. INTERNAL links the library's objects
# statically so that the test sees internals; otherwise it links libheed.so and sees include/ only.
function(heed_add_test name)
  cmake_parse_arguments(ARG "INTERNAL" "" "SOURCES;LABELS" ${ARGN})
  set(kind public)
  set(library heed)
  if(ARG_INTERNAL)
    set(kind internal)
    set(library heed_internal)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE heed_${kind}_test_settings ${library})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_precompile_headers(${name} REUSE_FROM heed_${kind}_test_pch)
  set(c_sources ${ARG_SOURCES})
  list(FILTER c_sources INCLUDE REGEX "\\.c$")
  set_source_files_properties(${c_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  add_test(NAME ${name} COMMAND ${name})
  set(environment "GTEST_OUTPUT=set:xml:${HEED_TEST_RESULTS_DIR}/${name}.xml")
  # What was tuned on this machine must not choose the rows that tests run.
  list(APPEND environment HEED_TUNE=set:off)
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    list(APPEND environment HEED_TEST_EMULATED=set:1)  # tests/support/emulated.h
  endif()
  if(HEED_SANITIZE MATCHES "thread")
    set(suppressions ${PROJECT_SOURCE_DIR}/tests/support/tsan.supp)
    list(APPEND environment TSAN_OPTIONS=string_prepend:suppressions=${suppressions}:)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}"
    ENVIRONMENT_MODIFICATION "${environment}")
endfunction()
