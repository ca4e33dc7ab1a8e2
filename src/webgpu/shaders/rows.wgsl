// Rows of a tensor and their packed copies (src/webgpu/row_copies.h). A workgroup takes some words
// of the packed rows, as its record in `table` says. src/webgpu/row_table.cc fills the table.

const KIND: u32 = 0u;
const ROW_WORDS: u32 = 1u;       // of a packed row
const ELEMENT_STRIDE: u32 = 2u;
const CONSTANT: u32 = 3u;
const HEADER_WORDS: u32 = 4u;

const WORDS: u32 = 0u;           // elements of 4 bytes
const HALVES: u32 = 1u;          // of 2 bytes, two in a packed word
const WIDENED_FP16: u32 = 2u;    // as fp32
const WIDENED_BF16: u32 = 3u;

// A record. Elements count within the binding of the tensor; sums wrap around.
const ORIGIN: u32 = 0u;          // element 0 of row 0 of the copy
const PACKED: u32 = 1u;          // first packed word of the record
const FIRST: u32 = 2u;           // the same, counted within the copy
const NUM_WORDS: u32 = 3u;
const NUM_INNER: u32 = 4u;
const OUTER_STRIDE: u32 = 5u;
const INNER_STRIDE: u32 = 6u;
const ROW_ELEMENTS: u32 = 7u;
const IS_CONSTANT: u32 = 8u;
const RECORD_WORDS: u32 = 12u;

const LANES: u32 = 256u;

@group(0) @binding(0) var<storage, read> table: array<u32>;

// What a packed word holds: `count` elements, none where it only fills up the row.
struct Place {
  element: u32,
  count: u32,
}

fn place_of(record: u32, at: u32) -> Place {
  let word = table[record + FIRST] + at;
  let row_words = table[ROW_WORDS];
  let row = word / row_words;
  let per_word = select(1u, 2u, table[KIND] == HALVES);
  let number = (word - row * row_words) * per_word;
  let num_inner = table[record + NUM_INNER];
  let outer = row / num_inner;
  let element = table[record + ORIGIN] + outer * table[record + OUTER_STRIDE] +
                (row - outer * num_inner) * table[record + INNER_STRIDE] +
                number * table[ELEMENT_STRIDE];
  let row_elements = table[record + ROW_ELEMENTS];
  return Place(element, min(row_elements - min(row_elements, number), per_word));
}
