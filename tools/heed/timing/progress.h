// A progress bar on stderr; silent unless stderr is a terminal.
#ifndef HEED_TOOLS_TIMING_PROGRESS_H_
#define HEED_TOOLS_TIMING_PROGRESS_H_

#include <cstdint>
#include <string>

namespace heed::tools {

class Progress {
 public:
  explicit Progress(std::int64_t num_cases);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void StartCase(const std::string& name);
  // Share of the current case that is done, in [0, 1].
  void Update(double case_fraction);
  // Removes the bar, so that a line can be printed.
  void Clear();

 private:
  void Draw(double case_fraction);

  std::int64_t num_cases_;
  std::int64_t num_started_ = 0;
  std::string name_;
  bool is_terminal_;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_PROGRESS_H_
