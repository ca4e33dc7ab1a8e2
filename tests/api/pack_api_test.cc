// The arguments of heed_pack_build, heed_pack_describe and heed_pack_verify; tests/cli tests what
// they do.
#include <gtest/gtest.h>

#include <string>

#include "heed/heed.h"

namespace heed::test {
namespace {

void ExpectRefused(heed_status_t status, const std::string& part) {
  EXPECT_EQ(status, HEED_INVALID_ARGUMENT);
  EXPECT_NE(std::string(heed_last_error()).find(part), std::string::npos) << heed_last_error();
}

TEST(PackArguments, AreChecked) {
  ExpectRefused(heed_pack_build(nullptr), "args = NULL");
  heed_pack_args_t args = HEED_PACK_ARGS_INIT;
  ExpectRefused(heed_pack_build(&args), "path = NULL");
  args.path = "";
  ExpectRefused(heed_pack_build(&args), "path = \"\"");
  args.path = "/nowhere/x.heedpack";
  args.num_threads = -1;
  ExpectRefused(heed_pack_build(&args), "num_threads = -1");
  args.num_threads = 1;
  args.archs = "eighty";
  ExpectRefused(heed_pack_build(&args), "archs = eighty");
  args.archs = "";
  ExpectRefused(heed_pack_build(&args), "archs = \"\"");
  args.archs = "80";
  for (const char* features : {"", "windows", "window,", "bias+bias-f32", "window+"}) {
    args.features = features;
    ExpectRefused(heed_pack_build(&args), "features");
  }
  args.features = nullptr;
  args.num_calls = 1;
  ExpectRefused(heed_pack_build(&args), "num_calls = 1");
  args.num_calls = -1;
  ExpectRefused(heed_pack_build(&args), "num_calls = -1");
  const heed_forward_args_t empty_call = HEED_FORWARD_ARGS_INIT;
  const heed_forward_args_t* const calls[] = {&empty_call};
  args.calls = calls;
  args.num_calls = 1;
  ExpectRefused(heed_pack_build(&args), "calls[0]: q = NULL");
  args.calls = nullptr;
  args.num_calls = 0;
  ExpectRefused(heed_pack_build(&args), "/nowhere/x.heedpack: cannot create");
  args.struct_size = 8;
  ExpectRefused(heed_pack_build(&args), "struct_size = 8");
}

TEST(PackArguments, OfReadersAreChecked) {
  char text[8];
  ExpectRefused(heed_pack_describe(nullptr, HEED_INFO_TEXT, text, sizeof(text), nullptr),
                "path = NULL");
  ExpectRefused(heed_pack_describe("x", static_cast<heed_info_format_t>(1 + HEED_INFO_JSON), text,
                                   sizeof(text), nullptr),
                "format = 2");
  ExpectRefused(heed_pack_describe("x", HEED_INFO_TEXT, nullptr, 1, nullptr), "text");
  ExpectRefused(heed_pack_verify(nullptr), "path = NULL");
  ExpectRefused(heed_pack_verify("/nowhere/x.heedpack"), "/nowhere/x.heedpack: cannot open");
}

}  // namespace
}  // namespace heed::test
