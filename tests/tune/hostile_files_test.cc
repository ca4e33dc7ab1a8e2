// Whatever lies in the folder of stored choices, calls run as without it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "support/emulated.h"
#include "tune/fixture.h"

namespace heed::test {
namespace {

using core::tune::Record;

struct HostileFiles : TuneFixture {
  // The stored file holds `content`: it is left aside, named in the log, and the call succeeds.
  void ExpectIgnored(const std::string& path, const std::string& content,
                     const std::string& complaint) {
    WriteText(path, content);
    ExpectIgnored(complaint);
  }
  void ExpectIgnored(const std::string& complaint) {
    SCOPED_TRACE(complaint);
    std::filesystem::remove(folder.Path("log"));
    core::tune::ForgetTables();
    EXPECT_EQ(PlannedRow(), default_row);
    EXPECT_EQ(call.Run(), HEED_OK) << heed_last_error();
    EXPECT_TRUE(Contains(Logged(), complaint)) << Logged();
  }
};

TEST_F(HostileFiles, CutDamagedForeign) {
  const Record record = RecordOfCall();
  const std::string path = PathOf(record);
  Store(record);
  const std::string whole = ReadText(path);
  for (std::size_t length = 0; length < whole.size(); length += 37) {
    ExpectIgnored(path, whole.substr(0, length), "; ignored");
  }
  std::string changed = whole;
  changed[whole.size() / 2] ^= 1;
  ExpectIgnored(path, changed, "is damaged or cut short; ignored");
  ExpectIgnored(path, whole + whole, "is damaged or cut short; ignored");
  ExpectIgnored(path, "heed tuning 2\n" + whole.substr(14), "has another format; ignored");
  ExpectIgnored(path, "", "is not a tuning record; ignored");
  ExpectIgnored(path, std::string(1 << 20, 'x'), "larger than 4096 bytes; ignored");
  WriteText(path, whole);
  core::tune::ForgetTables();
  EXPECT_EQ(PlannedRow(), kGenericRow) << "and a sound file is used again";
}

TEST_F(HostileFiles, SoundRecordsThatDoNotApply) {
  Record record = RecordOfCall();
  record.kernel_id = "cpu.avx2.forward.f32.d576.q24k999";
  Store(record);
  ExpectIgnored("cpu.avx2.forward.f32.d576.q24k999: no such forward row; ignored");
  record = RecordOfCall();
  record.library = "0.0.9 abc";
  Store(record);
  std::int64_t num_removed = 0;
  EXPECT_EQ(PlannedRow(), default_row) << "of another library";
  std::string text(4096, '\0');
  EXPECT_EQ(heed_tune_describe(HEED_INFO_TEXT, text.data(), text.size(), nullptr), HEED_OK);
  EXPECT_TRUE(Contains(text, "of another library: not used")) << text;
  EXPECT_EQ(heed_tune_clear(&num_removed), HEED_OK);
  EXPECT_EQ(num_removed, 2) << "records of other libraries go, too";
  record = RecordOfCall();
  record.device = "cpu: another one";
  Store(record);
  EXPECT_EQ(PlannedRow(), default_row);
  // A row that takes another type: found, but it does not fit.
  record = RecordOfCall();
  record.kernel_id = "cpu.generic.forward.f16.d576.q12k128";
  Store(record);
  EXPECT_EQ(PlannedRow(), default_row);
}

TEST_F(HostileFiles, AFolderInItsPlace) {
  const Record record = RecordOfCall();
  std::filesystem::create_directories(PathOf(record));
  chmod(TuneFolder().c_str(), 0700);
  ExpectIgnored("not a regular file; ignored");
  heed_tune_options_t options = HEED_TUNE_OPTIONS_INIT;
  options.num_rounds = 1;
  options.slice_seconds = 1e-4;
  EXPECT_EQ(heed_tune(HEED_OP_FORWARD, &call.args, &options), HEED_UNAVAILABLE);
  EXPECT_TRUE(Contains(heed_last_error(), "tuning cannot be stored: ")) << heed_last_error();
  std::int64_t num_removed = -1;
  EXPECT_EQ(heed_tune_clear(&num_removed), HEED_OK) << heed_last_error();
  EXPECT_EQ(num_removed, 0) << "a folder is not heed's to remove";
  EXPECT_TRUE(std::filesystem::is_directory(PathOf(record)));
  std::filesystem::remove(PathOf(record));
  EXPECT_EQ(heed_tune(HEED_OP_FORWARD, &call.args, &options), HEED_OK) << heed_last_error();
}

TEST_F(HostileFiles, APipeInItsPlaceMakesNobodyWait) {
  const Record record = RecordOfCall();
  std::filesystem::create_directories(TuneFolder());
  ASSERT_EQ(mkfifo(PathOf(record).c_str(), 0600), 0);
  ExpectIgnored("not a regular file; ignored");
}

TEST_F(HostileFiles, AFileInPlaceOfTheFolder) {
  WriteText(TuneFolder(), "not a folder");
  EXPECT_EQ(PlannedRow(), default_row);
  EXPECT_EQ(call.Run(), HEED_OK);
  EXPECT_EQ(heed_tune(HEED_OP_FORWARD, &call.args, nullptr), HEED_UNAVAILABLE);
  EXPECT_TRUE(Contains(heed_last_error(), "tuning cannot be stored: ")) << heed_last_error();
}

TEST_F(HostileFiles, FilesThatOthersMayChange) {
  const Record record = RecordOfCall();
  Store(record);
  ASSERT_EQ(chmod(PathOf(record).c_str(), 0666), 0);
  ExpectIgnored("others may write to it; ignored");
}

TEST_F(HostileFiles, OtherNamesInTheFolderAreNotTouched) {
  Store(RecordOfCall());
  WriteText(TuneFolder() + "/notes.txt", "mine");
  EXPECT_EQ(PlannedRow(), kGenericRow);
  std::int64_t num_removed = 0;
  EXPECT_EQ(heed_tune_clear(&num_removed), HEED_OK);
  EXPECT_EQ(num_removed, 1);
  EXPECT_EQ(ReadText(TuneFolder() + "/notes.txt"), "mine");
}

TEST_F(HostileFiles, AReadOnlyFolder) {
  if (IsEmulated()) GTEST_SKIP() << kNoThreadsAfterFork;
  ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
  // An ordinary user, to whom the mode means something.
  EXPECT_TRUE(InChildProcess([&] {
    const bool is_refused = heed_tune(HEED_OP_FORWARD, &call.args, nullptr) == HEED_UNAVAILABLE;
    return is_refused && Contains(heed_last_error(), "tuning cannot be stored: ") &&
           call.Run() == HEED_OK;
  }));
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
}

// Two writers of one record and a reader: every file is whole at any moment.
TEST_F(HostileFiles, TwoProcessesAtOnce) {
  Record record = RecordOfCall();
  Store(record);
  const auto write_many = [&](double seconds) {
    record.kernel_seconds = seconds;
    for (int write = 0; write < 10; ++write) {
      if (!core::tune::WriteRecord(record).ok()) return false;
    }
    return true;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(write_many(1e-6) ? 0 : 1);
  for (int read = 0; read < 10; ++read) {
    core::tune::ForgetTables();
    EXPECT_EQ(PlannedRow(), kGenericRow);
    EXPECT_TRUE(write_many(2e-6));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  core::tune::ForgetTables();
  EXPECT_EQ(PlannedRow(), kGenericRow);
  EXPECT_EQ(Logged(), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(TuneFolder()),
                          std::filesystem::directory_iterator()),
            1)
      << "temporary files were left behind";
}

}  // namespace
}  // namespace heed::test
