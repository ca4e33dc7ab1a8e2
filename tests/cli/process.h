// Runs the heed tool as a user does and collects what it leaves behind.
#ifndef HEED_TESTS_CLI_PROCESS_H_
#define HEED_TESTS_CLI_PROCESS_H_

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace heed::test {

struct Outcome {
  int exit_code = -1;  // -1 when a signal ended the process
  int signal_number = 0;
  std::string out;
  std::string err;
};

// A fresh folder, removed with everything in it at the end of its life.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // Names of everything in the folder, sorted.
  std::vector<std::string> Names() const;

 private:
  std::filesystem::path folder_;
};

// A running tool. `environment` holds "NAME=value" settings added to the test's own; standard
// output goes to the file `out`, or is collected when that is "".
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
          const std::string& out = "");
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal_number) const;
  Outcome Wait();

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
};

Outcome RunTool(const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment = {});

// Standard output goes to the file or device `out`.
Outcome RunToolInto(const std::string& out, const std::vector<std::string>& arguments);

void WriteFile(const std::string& path, const std::string& content);
std::string ReadFile(const std::string& path);  // "" when there is none

}  // namespace heed::test

#endif  // HEED_TESTS_CLI_PROCESS_H_
