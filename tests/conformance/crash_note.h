// Names the running case when the process dies, so that a crash can be re-run like a failure.
#ifndef HEED_TESTS_CONFORMANCE_CRASH_NOTE_H_
#define HEED_TESTS_CONFORMANCE_CRASH_NOTE_H_

#include <string>

namespace heed::test {

// Installs the handlers once; later calls do nothing.
void InstallCrashNote();
// What this thread works on. The text is copied.
void SetCrashNote(const std::string& text);

}  // namespace heed::test

#endif  // HEED_TESTS_CONFORMANCE_CRASH_NOTE_H_
