// Fills a ForwardInstance from its case.
#ifndef HEED_TESTS_SUPPORT_INSTANCE_BUILDER_H_
#define HEED_TESTS_SUPPORT_INSTANCE_BUILDER_H_

#include <memory>

#include "support/forward_instance.h"
#include "support/layout.h"
#include "support/random.h"

namespace heed::test {

class InstanceBuilder {
 public:
  explicit InstanceBuilder(ForwardInstance& instance);
  void Build();

 private:
  std::unique_ptr<StridedTensor> NewRows(const char* name, Indices shape, Use use) const;
  std::unique_ptr<StridedTensor> NewScore(const char* name, const ScorePattern& pattern) const;
  std::unique_ptr<StridedTensor> NewVector(Element element, Indices shape) const;

  void MakeRowTensors();
  void MakeLengthTensors();
  void MakeBlockTable();
  void MakeScoreTensors();
  void FillMask();
  // Gives a number to every bias entry, query row and key that takes part; the rest stays poison.
  void FillLiveSlots();
  void FillQueryRow(std::int64_t b, std::int64_t row, std::int64_t head, Random& random);
  void FillKey(std::int64_t b, std::int64_t token, std::int64_t kv_head, Random& random);
  void FillValue(std::int64_t b, std::int64_t token, std::int64_t kv_head, Random& random);
  void PlantNanKey();

  ForwardInstance& instance_;
  const ForwardCase& case_;
  Placement placement_;
  Poison poison_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_INSTANCE_BUILDER_H_
