#include "core/os/files.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace heed::core::os {
namespace {

struct FilesTest : ::testing::Test {
  FilesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heed_files_XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~FilesTest() override { std::filesystem::remove_all(folder); }
  std::string Path(const char* name) const { return folder + "/" + name; }

  std::string folder, content, error;
};

TEST_F(FilesTest, WhatIsWrittenIsRead) {
  const std::string text("a\0b\n", 4);
  ASSERT_TRUE(WriteFileAtomically(Path("f"), text, FileAccess::kOwnerOnly, &error)) << error;
  EXPECT_EQ(ReadWholeFile(Path("f"), FileTrust::kOwnOnly, 4, &content, &error), ReadOutcome::kRead);
  EXPECT_EQ(content, text);
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "new", FileAccess::kByUmask, &error)) << error;
  EXPECT_EQ(ReadWholeFile(Path("f"), FileTrust::kAnyOwner, 4, &content, &error),
            ReadOutcome::kRead);
  EXPECT_EQ(content, "new");
  EXPECT_EQ(ListFolder(folder), std::vector<std::string>{"f"});
}

TEST_F(FilesTest, MissingIsNotAFailure) {
  EXPECT_EQ(ReadWholeFile(Path("f"), FileTrust::kAnyOwner, 9, &content, &error),
            ReadOutcome::kMissing);
  EXPECT_EQ(ReadWholeFile(Path("f/g"), FileTrust::kAnyOwner, 9, &content, &error),
            ReadOutcome::kMissing);
}

TEST_F(FilesTest, RefusalsNameTheFileAndTheRule) {
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "12345", FileAccess::kOwnerOnly, &error));
  EXPECT_EQ(ReadWholeFile(Path("f"), FileTrust::kOwnOnly, 4, &content, &error),
            ReadOutcome::kFailed);
  EXPECT_EQ(error, Path("f") + ": larger than 4 bytes");
  for (const mode_t mode : {0620u, 0602u}) {
    chmod(Path("f").c_str(), mode);
    EXPECT_EQ(ReadWholeFile(Path("f"), FileTrust::kOwnOnly, 9, &content, &error),
              ReadOutcome::kFailed);
    EXPECT_EQ(error, Path("f") + ": others may write to it");
    EXPECT_EQ(ReadWholeFile(Path("f"), FileTrust::kAnyOwner, 9, &content, &error),
              ReadOutcome::kRead);
  }
  EXPECT_EQ(ReadWholeFile(folder, FileTrust::kAnyOwner, 9, &content, &error), ReadOutcome::kFailed);
  EXPECT_EQ(error, folder + ": not a regular file");
}

TEST_F(FilesTest, AFailedWriteLeavesNothing) {
  EXPECT_FALSE(WriteFileAtomically(Path("no/f"), "x", FileAccess::kOwnerOnly, &error));
  EXPECT_TRUE(error.starts_with(Path("no/f") + ": cannot create: ")) << error;
  std::filesystem::create_directory(Path("taken"));
  EXPECT_FALSE(WriteFileAtomically(Path("taken"), "x", FileAccess::kOwnerOnly, &error));
  EXPECT_EQ(ListFolder(folder), std::vector<std::string>{"taken"});
}

TEST_F(FilesTest, WhetherAFileCouldBeWritten) {
  EXPECT_TRUE(CanWriteFile(Path("f"), &error)) << error;
  EXPECT_TRUE(ListFolder(folder).empty());
  EXPECT_FALSE(CanWriteFile(Path("no/f"), &error));
  EXPECT_TRUE(error.starts_with(Path("no/f") + ": cannot create: ")) << error;
  EXPECT_FALSE(CanWriteFile(folder, &error));
  EXPECT_EQ(error, folder + ": not a regular file");
}

TEST_F(FilesTest, PrivateFoldersAreMadeWithTheirParents) {
  ASSERT_TRUE(EnsurePrivateFolder(Path("a/b/c"), &error)) << error;
  ASSERT_TRUE(EnsurePrivateFolder(Path("a/b/c"), &error)) << error;
  for (const char* name : {"a", "a/b", "a/b/c"}) {
    struct stat status = {};
    ASSERT_EQ(stat(Path(name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777u, 0700u) << name;
  }
  chmod(Path("a/b/c").c_str(), 0777);
  EXPECT_FALSE(EnsurePrivateFolder(Path("a/b/c"), &error));
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "", FileAccess::kOwnerOnly, &error));
  EXPECT_FALSE(EnsurePrivateFolder(Path("f"), &error));
  EXPECT_EQ(error, Path("f") + ": not a folder");
  EXPECT_FALSE(EnsurePrivateFolder(Path("f/below"), &error));
}

TEST_F(FilesTest, AnOpenFileStaysTheSame) {
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "first", FileAccess::kByUmask, &error));
  RandomAccessFile file;
  ASSERT_TRUE(file.Open(Path("f"), &error)) << error;
  ASSERT_TRUE(WriteFileAtomically(Path("f"), "second", FileAccess::kByUmask, &error));
  EXPECT_EQ(file.num_bytes(), 5u);
  EXPECT_TRUE(file.ReadAt(1, 3, &content));
  EXPECT_EQ(content, "irs");
  EXPECT_TRUE(file.ReadAt(5, 0, &content));
  for (const auto& [offset, count] : {std::pair{6u, 0u}, {4u, 2u}, {~0u, 1u}}) {
    EXPECT_FALSE(file.ReadAt(offset, count, &content));
  }
  RandomAccessFile absent;
  EXPECT_FALSE(absent.Open(Path("g"), &error));
  EXPECT_FALSE(absent.Open(folder, &error));
}

TEST_F(FilesTest, AppendingKeepsWhatIsThere) {
  EXPECT_TRUE(AppendToFile(Path("log"), "one\n"));
  EXPECT_TRUE(AppendToFile(Path("log"), "two\n"));
  ReadWholeFile(Path("log"), FileTrust::kAnyOwner, 99, &content, &error);
  EXPECT_EQ(content, "one\ntwo\n");
  EXPECT_FALSE(AppendToFile(Path("no/log"), "x"));
}

}  // namespace
}  // namespace heed::core::os
