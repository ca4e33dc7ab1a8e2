// Bindings that every pipeline has here, and that probes of features have no use for.
@group(0) @binding(3) var<storage, read> unused_3: array<u32>;
@group(0) @binding(4) var<storage, read> unused_4: array<u32>;
@group(0) @binding(5) var<storage, read> unused_5: array<u32>;
@group(0) @binding(6) var<storage, read> unused_6: array<u32>;
@group(0) @binding(7) var<storage, read> unused_7: array<u32>;
@group(0) @binding(8) var<storage, read> unused_8: array<u32>;

fn unused_words() -> u32 {
  return arrayLength(&unused_3) + arrayLength(&unused_4) + arrayLength(&unused_5) +
         arrayLength(&unused_6) + arrayLength(&unused_7) + arrayLength(&unused_8);
}
