# Writes a C++ file that holds texts as string constants.
# cmake -DROOT=<folder> -DNAMES_FILE=<file with one name per line> -DOUTPUT=<file.cc>
#   -DNAMESPACE=<of EmbeddedSource> -DHEADER=<that declares it> -DFUNCTION=<that returns them>
#   -P <this>
# Names are relative to ROOT and stay in the order of the list.
file(STRINGS ${NAMES_FILE} names)
set(entries "")
foreach(name IN LISTS names)
  file(READ "${ROOT}/${name}" text)
  # A raw string ends at )heed_text" only.
  string(FIND "${text}" ")heed_text\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${name}: contains the end mark of raw strings, )heed_text\"")
  endif()
  string(APPEND entries "    {\"${name}\", R\"heed_text(${text})heed_text\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Written by cmake/EmbedSources.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

constexpr EmbeddedSource kSources[] = {
${entries}};

}  // namespace

std::span<const EmbeddedSource> ${FUNCTION}() { return kSources; }

}  // namespace ${NAMESPACE}
")
