// heed pack build, list and verify.
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "call.h"
#include "commands.h"
#include "errors.h"
#include "inputs.h"
#include "timing/progress.h"

namespace heed::tools {
namespace {

std::string PackText(const std::string& path, heed_info_format_t format) {
  std::size_t needed_bytes = 0;
  RequireOk(heed_pack_describe(path.c_str(), format, nullptr, 0, &needed_bytes));
  std::string text(needed_bytes, '\0');
  RequireOk(heed_pack_describe(path.c_str(), format, text.data(), text.size(), nullptr));
  text.resize(text.find('\0'));
  return text;
}

// The bar appears with the first report, which says how many kernels there are.
void ShowProgress(void* context, std::int64_t num_done, std::int64_t num_kernels,
                  const char* kernel) {
  auto& bar = *static_cast<std::unique_ptr<Progress>*>(context);
  if (bar == nullptr) bar = std::make_unique<Progress>(num_kernels);
  if (num_done == 0) return;
  bar->StartCase(kernel);
  bar->Update(1.0);  // reported when it is done
}

// A problem in the words of `heed explain`. The call points into the rest.
class Problem {
 public:
  explicit Problem(const std::string& text)
      : options_(Parse(text)),
        inputs_(MakeInputs(options_, Fill::kShapesOnly)),
        outputs_(OutputShapes(inputs_)),
        call_(inputs_, options_, outputs_) {}

  const heed_forward_args_t* args() const { return call_.args(); }

 private:
  static Options Parse(const std::string& text) {
    std::vector<std::string> words = {"heed", "explain"};
    std::istringstream stream(text);
    for (std::string word; stream >> word;) words.push_back(word);
    std::vector<char*> arguments;
    arguments.reserve(words.size());
    for (std::string& word : words) arguments.push_back(word.data());
    Options options;
    try {
      if (ParseOptions(static_cast<int>(arguments.size()), arguments.data(), &options) ==
          ParseOutcome::kRun) {
        return options;
      }
    } catch (const InputError& error) {
      throw InputError("--for '" + text + "': " + error.what());
    }
    throw InputError("--for '" + text + "': is no problem");
  }

  Options options_;
  Inputs inputs_;
  Outputs outputs_;
  ForwardCall call_;
};

std::vector<std::unique_ptr<Problem>> ReadProblems(const std::vector<std::string>& texts) {
  std::vector<std::unique_ptr<Problem>> problems;
  for (const std::string& text : texts) {
    if (!text.starts_with('@')) {
      problems.push_back(std::make_unique<Problem>(text));
      continue;
    }
    std::ifstream file(text.substr(1));
    if (!file) throw InputError("--for " + text + ": cannot read the file");
    const std::size_t num_before = problems.size();
    for (std::string line; std::getline(file, line);) {
      const bool is_empty = line.find_first_not_of(" \t\r") == std::string::npos;
      if (!is_empty && line[0] != '#') problems.push_back(std::make_unique<Problem>(line));
    }
    if (problems.size() == num_before) throw InputError("--for " + text + ": holds no problem");
  }
  return problems;
}

int Build(const PackOptions& pack) {
  std::unique_ptr<Progress> bar;
  const std::vector<std::unique_ptr<Problem>> problems = ReadProblems(pack.problems);
  std::vector<const heed_forward_args_t*> calls;
  calls.reserve(problems.size());
  for (const std::unique_ptr<Problem>& problem : problems) calls.push_back(problem->args());
  if (pack.with_gradients && calls.empty()) {
    throw InputError("--gradients: belongs to problems, which --for names");
  }
  heed_pack_args_t args = HEED_PACK_ARGS_INIT;
  args.path = pack.path.c_str();
  if (pack.archs.has_value()) args.archs = pack.archs->c_str();
  if (pack.features.has_value()) args.features = pack.features->c_str();
  args.calls = calls.data();
  args.num_calls = static_cast<std::int64_t>(calls.size());
  args.with_gradients = pack.with_gradients ? HEED_ON : HEED_OFF;
  if (!pack.rows.empty()) args.kernels = pack.rows.c_str();
  args.num_threads = pack.num_threads;
  args.progress = ShowProgress;
  args.progress_context = &bar;
  const heed_status_t status = heed_pack_build(&args);
  bar.reset();
  RequireOk(status);
  const std::string text = PackText(pack.path, HEED_INFO_TEXT);
  // The last line counts the kernels.
  const std::size_t count = text.rfind('\n', text.size() - 2) + 1;
  std::printf("%s: %s", pack.path.c_str(), text.substr(count).c_str());
  return kExitOk;
}

int List(const PackOptions& pack) {
  std::string text = PackText(pack.path, pack.json ? HEED_INFO_JSON : HEED_INFO_TEXT);
  if (!text.ends_with('\n')) text += '\n';
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int Verify(const PackOptions& pack) {
  RequireOk(heed_pack_verify(pack.path.c_str()));
  std::printf("%s: ok\n", pack.path.c_str());
  return kExitOk;
}

}  // namespace

int RunPack(const Options& options) {
  switch (options.pack.action) {
    case PackAction::kBuild:
      return Build(options.pack);
    case PackAction::kList:
      return List(options.pack);
    case PackAction::kVerify:
      return Verify(options.pack);
  }
  return kExitBadInput;
}

}  // namespace heed::tools
