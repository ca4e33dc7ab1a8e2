#include "core/log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace heed::core {
namespace {

TEST(LogSetting, LevelsAndFiles) {
  EXPECT_EQ(ParseLogSetting("").level, LogLevel::kOff);
  EXPECT_EQ(ParseLogSetting("off").level, LogLevel::kOff);
  EXPECT_EQ(ParseLogSetting("warn").level, LogLevel::kWarn);
  EXPECT_EQ(ParseLogSetting("debug").level, LogLevel::kDebug);
  const LogSetting with_file = ParseLogSetting("info:/tmp/a:b");
  EXPECT_EQ(with_file.level, LogLevel::kInfo);
  EXPECT_EQ(with_file.path, "/tmp/a:b");
  EXPECT_EQ(with_file.complaint, "");
}

TEST(LogSetting, WhatIsNotUnderstoodIsSaid) {
  for (const char* value : {"1", "verbose", "WARN:/tmp/x"}) {
    const LogSetting setting = ParseLogSetting(value);
    EXPECT_EQ(setting.level, LogLevel::kWarn);
    EXPECT_EQ(setting.path, "");
    EXPECT_NE(setting.complaint.find(value), std::string::npos) << setting.complaint;
  }
}

TEST(Log, WritesWhatTheLevelAsksFor) {
  const std::string path = (std::filesystem::temp_directory_path() / "heed_log_test.txt").string();
  std::filesystem::remove(path);
  unsetenv("HEED_LOG");
  Log(LogLevel::kWarn, "silent by default");
  setenv("HEED_LOG", ("info:" + path).c_str(), 1);
  EXPECT_TRUE(IsLogged(LogLevel::kInfo));
  EXPECT_FALSE(IsLogged(LogLevel::kDebug));
  Log(LogLevel::kWarn, "first");
  Log(LogLevel::kInfo, "second");
  Log(LogLevel::kDebug, "third");
  unsetenv("HEED_LOG");
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), "heed: warn: first\nheed: info: second\n");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace heed::core
