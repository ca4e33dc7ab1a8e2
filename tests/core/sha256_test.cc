#include "core/sha256.h"

#include <gtest/gtest.h>

namespace heed::core {
namespace {

// FIPS 180-4 examples and the message lengths around a block's end.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Hex(Sha256Of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256Of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesAreTheWhole) {
  const std::string text(200, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 sum;
    sum.Add(std::string_view(text).substr(0, cut));
    sum.Add(std::string_view(text).substr(cut));
    EXPECT_EQ(sum.Finish(), Sha256Of(text)) << cut;
  }
}

TEST(Sha256, FieldsDoNotRunTogether) {
  Sha256 first, second;
  for (const char* field : {"ab", "c"}) first.AddField(field);
  for (const char* field : {"a", "bc"}) second.AddField(field);
  EXPECT_NE(first.Finish(), second.Finish());
}

}  // namespace
}  // namespace heed::core
