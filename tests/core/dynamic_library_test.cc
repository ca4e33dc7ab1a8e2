#include "core/os/dynamic_library.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace heed::core::os {
namespace {

TEST(DynamicLibrary, FindsFunctions) {
  std::string error;
  const DynamicLibrary library = DynamicLibrary::Open("libc.so.6", &error);
  ASSERT_TRUE(library.is_open()) << error;
  int (*absolute)(int) = nullptr;
  ASSERT_TRUE(library.Resolve("abs", &absolute));
  EXPECT_EQ(absolute(-3), 3);
  EXPECT_FALSE(library.Resolve("heed_no_such_function", &absolute));
}

TEST(DynamicLibrary, SaysWhyNot) {
  std::string error;
  EXPECT_FALSE(DynamicLibrary::Open("libheed_no_such_library.so.1", &error).is_open());
  EXPECT_NE(error.find("libheed_no_such_library.so.1"), std::string::npos);
  EXPECT_EQ(DynamicLibrary().Symbol("abs"), nullptr);
}

TEST(LibraryPaths, NameThisProcessAndTheCLibrary) {
  static const int kHere = 0;
  EXPECT_TRUE(PathOfLibraryWith(&kHere).ends_with("core_test"));
  const std::vector<std::string> paths = LoadedLibraryPaths();
  EXPECT_TRUE(std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    return path.find("libc.so") != std::string::npos;
  }));
}

}  // namespace
}  // namespace heed::core::os
