// Per-element score rules as tiles that the kernels add or multiply: [key][lane], lanes past the
// rows of the tile hidden.
#ifndef HEED_CPU_SCORE_TERMS_H_
#define HEED_CPU_SCORE_TERMS_H_

#include "core/problem.h"
#include "cpu/tile_rows.h"
#include "device/mask.h"

namespace heed::cpu {

// Where a tile of elements goes: destination[(key - keys.begin) * tile_rows + lane].
struct ElementTile {
  device::KeyRange keys;
  int tile_rows;
  float* destination;
};

// bias + ALiBi; kMaskedOut where the bool mask hides the key.
void FillAdditiveTile(const core::ForwardProblem& problem, const HeadSequence& head,
                      const TileRows& rows, const ElementTile& tile);

// 1 where dropout keeps the element, else 0.
void FillKeepTile(const core::ForwardProblem& problem, const HeadSequence& head,
                  const TileRows& rows, const ElementTile& tile);

}  // namespace heed::cpu

#endif  // HEED_CPU_SCORE_TERMS_H_
