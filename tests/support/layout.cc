#include "support/layout.h"

#include <algorithm>
#include <vector>

namespace heed::test {
namespace {

// Strides of a tensor whose axes lie in memory in `order`, slowest first, each axis followed by
// `gap_elems` unused elements.
Indices OrderedStrides(const Indices& shape, const std::vector<std::size_t>& order,
                       std::int64_t gap_elems) {
  Indices strides = Indices::Repeated(shape.count(), 0);
  std::int64_t stride_elems = 1;
  for (std::size_t at = order.size(); at-- > 0;) {
    strides[order[at]] = stride_elems;
    stride_elems = stride_elems * std::max<std::int64_t>(shape[order[at]], 1) + gap_elems;
  }
  return strides;
}

std::vector<std::size_t> NaturalOrder(std::size_t count) {
  std::vector<std::size_t> order(count);
  for (std::size_t at = 0; at < count; ++at) order[at] = at;
  return order;
}

std::vector<std::size_t> HeadsFirstOrder(std::size_t count) {
  return count == 3 ? std::vector<std::size_t>{1, 0, 2} : std::vector<std::size_t>{0, 2, 1, 3};
}

std::vector<std::size_t> RowsFirstOrder(std::size_t count) {
  return count == 3 ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>{1, 0, 2, 3};
}

// As q, k or v inside a fused projection: other heads stand between the rows' heads.
Indices SlicedStrides(const Indices& shape, std::int64_t extra_heads) {
  Indices wider = shape;
  wider[shape.count() - 2] += extra_heads;
  return CompactStrides(wider);
}

Indices HugeSingletonStrides(const Indices& shape, Random& random) {
  Indices strides = CompactStrides(shape);
  for (std::size_t axis = 0; axis + 1 < shape.count(); ++axis) {
    if (shape[axis] != 1) continue;
    strides[axis] = random.Pick<std::int64_t>({0, 1, 3, std::int64_t{1} << 40});
  }
  return strides;
}

}  // namespace

Indices RowsStrides(Layout layout, const Indices& shape, Use use, Random& random) {
  const std::size_t count = shape.count();
  switch (layout) {
    case Layout::kCompact:
      return CompactStrides(shape);
    case Layout::kHeadsFirst:
      return OrderedStrides(shape, HeadsFirstOrder(count), 0);
    case Layout::kRowsFirst:
      return OrderedStrides(shape, RowsFirstOrder(count), 0);
    case Layout::kPadded:
      return OrderedStrides(shape, NaturalOrder(count), 1 + random.Below(9));
    case Layout::kSlicedHeads:
      return SlicedStrides(shape, 1 + random.Below(5));
    case Layout::kHugeSingleton:
      return HugeSingletonStrides(shape, random);
    case Layout::kBroadcast: {
      Indices strides = CompactStrides(shape);
      if (use == Use::kOutput) return strides;
      strides[count - 2] = 0;
      if (count == 4 && random.Chance(0.5)) strides[0] = 0;
      return strides;
    }
  }
  return CompactStrides(shape);
}

Indices LseStrides(Layout layout, const Indices& shape, Random& random) {
  std::vector<std::size_t> order = NaturalOrder(shape.count());
  switch (layout) {
    case Layout::kPadded:
    case Layout::kSlicedHeads:
      return OrderedStrides(shape, order, 1 + random.Below(5));
    case Layout::kHeadsFirst:
    case Layout::kRowsFirst:
      std::swap(order[order.size() - 1], order[order.size() - 2]);
      return OrderedStrides(shape, order, 0);
    case Layout::kHugeSingleton:
      return HugeSingletonStrides(shape, random);
    default:
      return CompactStrides(shape);
  }
}

Indices ScoreStrides(Layout layout, const ScorePattern& pattern, const Indices& shape,
                     Random& random) {
  Indices real_shape = shape;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (!pattern.has_axis[axis]) real_shape[axis] = 1;
  }
  std::vector<std::size_t> order = NaturalOrder(4);
  if (layout == Layout::kRowsFirst) std::swap(order[2], order[3]);
  if (layout == Layout::kHeadsFirst) std::swap(order[0], order[1]);
  const std::int64_t gap_elems = layout == Layout::kPadded ? 1 + random.Below(5) : 0;
  Indices strides = OrderedStrides(real_shape, order, gap_elems);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (!pattern.has_axis[axis]) strides[axis] = 0;
  }
  return strides;
}

}  // namespace heed::test
