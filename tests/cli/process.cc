#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace heed::test {
namespace {

// In the child, between fork and exec.
void Redirect(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "heed_cli_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> TemporaryFolder::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Process::Process(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment, const std::string& out) {
  std::vector<std::string> words = {HEED_CLI_PATH};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> settings = environment;

  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  Redirect(STDOUT_FILENO, out.empty() ? folder_.Path("out") : out);
  Redirect(STDERR_FILENO, folder_.Path("err"));
  for (std::string& setting : settings) putenv(setting.data());
  execv(argv[0], argv.data());
  _exit(127);
}

Process::~Process() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  Wait();
}

void Process::Signal(int signal_number) const { kill(pid_, signal_number); }

Outcome Process::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  Outcome outcome;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal_number = WTERMSIG(status);
  outcome.out = ReadFile(folder_.Path("out"));
  outcome.err = ReadFile(folder_.Path("err"));
  return outcome;
}

Outcome RunTool(const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment) {
  return Process(arguments, environment).Wait();
}

Outcome RunToolInto(const std::string& out, const std::vector<std::string>& arguments) {
  return Process(arguments, {}, out).Wait();
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace heed::test
