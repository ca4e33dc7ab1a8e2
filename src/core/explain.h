// Plans in words, for heed_explain.
#ifndef HEED_CORE_EXPLAIN_H_
#define HEED_CORE_EXPLAIN_H_

#include <string>
#include <vector>

#include "core/plan.h"

namespace heed::core {

// The problem in two or three lines: operation, dtype, shape, and the rules that are on.
std::string Describe(const ForwardProblem& problem);
std::string Describe(const BackwardProblem& problem);
std::string Describe(const CombineProblem& problem);
std::string Describe(const DropoutMaskProblem& problem);
// The rules that are on, one line.
std::string DescribeRule(const ScoreRule& rule);

// The chosen row with tile, tasks, splits and workspace, or why there is none; then every other row
// of the operation with the first reason against it.
std::string ExplainPlan(const std::string& description, const Status& planned, const Plan& plan,
                        const std::vector<Rejection>& rejections);

}  // namespace heed::core

#endif  // HEED_CORE_EXPLAIN_H_
