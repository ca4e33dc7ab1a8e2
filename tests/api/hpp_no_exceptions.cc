// heed.hpp in a program compiled with -fno-exceptions. Returns the number of the first wrong step.
#include "api/hpp_calls.h"

#ifndef HEED_NO_EXCEPTIONS
#error "heed.hpp must notice that exceptions are off"
#endif

int main() {
  heed::test::HppProblem problem;
  heed::Forward call = problem.Call();
  if (heed::try_forward(call) != HEED_OK) return 1;
  if (problem.o[12] != (problem.v[0] + problem.v[12]) / 2) return 2;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  if (heed::try_plan(call, &plan) != HEED_OK || plan.kernel_id[0] == '\0') return 3;
  std::string text;
  if (heed::try_explain(call, &text) != HEED_OK || text.empty()) return 4;
  if (heed::try_info(HEED_INFO_JSON, &text) != HEED_OK || text.front() != '{') return 5;
  heed::Session session;
  if (heed::Session::try_create({}, &session) != HEED_INVALID_ARGUMENT) return 6;
  call.score.causal = false;
  call.q = heed::Tensor();
  return heed::try_forward(call) == HEED_INVALID_ARGUMENT ? 0 : 7;
}
