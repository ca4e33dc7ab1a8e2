// The error bound of every element of every gradient of a case.
#ifndef HEED_TESTS_SUPPORT_BACKWARD_BOUNDS_H_
#define HEED_TESTS_SUPPORT_BACKWARD_BOUNDS_H_

#include <cstdint>
#include <vector>

#include "support/backward_instance.h"
#include "support/backward_tolerance.h"
#include "support/head_rows.h"
#include "support/indexed_table.h"

namespace heed::test {

// How fp32 rows multiply; 16-bit products are exact.
enum class Fp32Products : std::uint8_t { kFused, kSplitTf32 };

class BackwardBounds {
 public:
  // The instance in the case's own types.
  BackwardBounds(const BackwardInstance& instance, Fp32Products products);

  // Of one element of the tensor, `expected` being the oracle's.
  double Dq(const Indices& index, double expected) const;
  double Dk(const Indices& index, double expected) const;
  double Dv(const Indices& index, double expected) const;
  double DBias(const Indices& index, double expected) const;
  double DSinks(const Indices& index, double expected) const;

 private:
  struct Norms {
    double euclidean = 0.0;
    double largest = 0.0;  // of the magnitudes
  };
  struct HeadNorms {
    std::vector<Norms> q, k, v, d_o;
  };
  static Norms NormsOf(const double* row, std::int64_t num_dims);
  static std::vector<Norms> NormsOf(const Rows<double>& rows, std::int64_t num_rows);

  void AddHead(const HeadRows<double>& rows);
  void AddRow(const HeadRows<double>& rows, const HeadNorms& norms, std::int64_t i);
  void AddPair(const HeadRows<double>& rows, const HeadNorms& norms, const RowEstimates& row,
               std::int64_t i, std::int64_t j);
  RowEstimates EstimateRow(const HeadRows<double>& rows, const HeadNorms& norms,
                           std::int64_t i) const;
  double StoredProducts(const SumBound& sum, double factor, double expected) const;
  double StoredSum(const SumBound& sum, Element element, double expected) const;

  const BackwardInstance& instance_;
  const ForwardCase& case_;
  RoundingModel rounding_;
  double product_roundings_;
  double dot_growth_;
  IndexedTable<SumBound> dq_, dk_, dv_;  // of rows
  IndexedTable<SumBound> d_bias_, d_sinks_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_BACKWARD_BOUNDS_H_
