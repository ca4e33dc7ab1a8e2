#include "support/attention_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/checker.h"
#include "support/kernel_rows.h"
#include "support/random.h"

namespace heed::test {
namespace {

Indices OutputShape(Indices q_shape, const Indices& v_shape) {
  q_shape[q_shape.count() - 1] = v_shape[v_shape.count() - 1];
  return q_shape;
}

Indices LseShape(const Indices& q_shape) {
  if (q_shape.count() == 3) return {q_shape[1], q_shape[0]};
  return {q_shape[0], q_shape[2], q_shape[1]};
}

}  // namespace

AttentionCall::AttentionCall(Element element, Indices q_shape, Indices k_shape, Indices v_shape)
    : q(element, q_shape),
      k(element, k_shape),
      v(element, v_shape),
      o(element, OutputShape(q_shape, v_shape)),
      lse(element == Element::kF64 ? Element::kF64 : Element::kF32, LseShape(q_shape)) {
  args.q = q.abi();
  args.k = k.abi();
  args.v = v.abi();
  args.o = o.abi();
  args.lse = lse.abi();
  args.score = &score;
  args.varlen = &varlen;
  args.exec = &exec;
}

void AttentionCall::FillNormal(std::uint64_t seed) {
  for (StridedTensor* tensor : {&q, &k, &v}) {
    Random random(seed++, "normal");
    tensor->Fill([&](const Indices&) { return random.Normal(); });
  }
}

heed_status_t AttentionCall::Run() {
  o.PoisonAll(Poison::kNaN);
  lse.PoisonAll(Poison::kNaN);
  for (StridedTensor* tensor : {&q, &k, &v, &o, &lse}) tensor->TakeSnapshot();
  const heed_status_t status = heed_forward(&args);
  for (const StridedTensor* input : {&q, &k, &v}) EXPECT_EQ(input->DescribeAnyWrite(), "");
  const auto anywhere = [](const Indices&) { return true; };
  EXPECT_EQ(o.DescribeStrayWrite(anywhere), "");
  EXPECT_EQ(lse.DescribeStrayWrite(anywhere), "");
  return status;
}

void AttentionCall::OnEveryKernel(const std::function<void()>& check) {
  int num_runs = 0;
  for (const KernelRow& row : RunnableForwardRows()) {
    if (!row.Takes(q.element())) continue;
    SCOPED_TRACE(row.id);
    const std::string id(row.id);
    exec.backend = row.AbiBackend();
    exec.kernel = id.c_str();
    ++num_runs;
    if (const heed_status_t status = Run(); status == HEED_OK) {
      check();
    } else {
      ADD_FAILURE() << heed_status_name(status) << ": " << heed_last_error();
    }
  }
  exec.backend = HEED_BACKEND_AUTO;
  exec.kernel = nullptr;
  EXPECT_GE(num_runs, 2) << "at least the oracle and one kernel run everywhere";
}

void AttentionCall::ExpectRefused(heed_status_t status, const std::vector<std::string>& texts) {
  EXPECT_STREQ(heed_status_name(Run()), heed_status_name(status));
  const std::string message = heed_last_error();
  for (const std::string& text : texts) {
    EXPECT_NE(message.find(text), std::string::npos) << "no '" << text << "' in: " << message;
  }
  EXPECT_EQ(o.DescribeAnyWrite(), "");
  EXPECT_EQ(lse.DescribeAnyWrite(), "");
}

std::vector<double> AttentionCall::OutputRow(const Indices& index) const {
  std::vector<double> row;
  Indices at = Indices::Repeated(index.count() + 1, 0);
  std::copy(index.begin(), index.end(), at.data());
  const std::size_t last = index.count();
  for (at[last] = 0; at[last] < o.shape()[last]; ++at[last]) row.push_back(o.At(at));
  return row;
}

IntTensor::IntTensor(const std::vector<std::int64_t>& values)
    : IntTensor({static_cast<std::int64_t>(values.size())}, values) {}

IntTensor::IntTensor(Indices shape, const std::vector<std::int64_t>& values)
    : StridedTensor(Element::kI32, shape) {
  std::size_t next = 0;
  Fill([&](const Indices&) { return static_cast<double>(values.at(next++)); });
}

void ExpectSameValues(const StridedTensor& expected, const StridedTensor& actual) {
  ForEachIndex(expected.shape(), [&](const Indices& index) {
    const double a = expected.At(index);
    const double b = actual.At(index);
    if (a != b && !(std::isnan(a) && std::isnan(b))) {
      ADD_FAILURE() << ToString(index) << ": expected " << a << ", is " << b;
    }
  });
}

void ExpectCasePasses(const std::string& case_id) {
  std::string error;
  const auto forward_case = ParseCaseId(case_id, &error);
  ASSERT_TRUE(forward_case.has_value()) << case_id << ": " << error;
  CaseChecker checker(*forward_case);
  ASSERT_EQ(checker.oracle_failure(), "");
  int num_runs = 0;
  for (const KernelRow& row : RunnableForwardRows()) {
    if (!row.Takes(forward_case->element)) continue;
    EXPECT_EQ(checker.Check(LibraryEngine(row)).failure, "");
    ++num_runs;
  }
  EXPECT_GE(num_runs, 2);
}

}  // namespace heed::test
