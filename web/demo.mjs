// The demo page: attention over captured activations, a heat map of a head, and times.
import { Heed } from "./heed.mjs";
import { attentionOf, compareLayer, timeBoth, weightsOf } from "./activations.mjs";
import { fetchSafetensors } from "./safetensors.mjs";

const element = (id) => document.getElementById(id);

function draw(weights, rows) {
  const context = element("map").getContext("2d");
  const image = context.createImageData(rows, rows);
  for (let at = 0; at < rows * rows; at++) {
    const shade = 255 * (1 - Math.sqrt(weights[at]));
    image.data.set([shade, shade, 255 * (1 - weights[at]), 255], 4 * at);
  }
  context.putImageData(image, 0, 0);
}

async function show(heed, tensors) {
  const layer = element("layer").value;
  const result = await attentionOf(heed, tensors, layer);
  draw(weightsOf(tensors, layer, Number(element("head").value), result.lse), result.rows);
  const { oError, lseError } = compareLayer(tensors, layer, result);
  element("result").value = `layer ${layer}: largest error of o ${oError.toExponential(1)}, of ` +
    `lse ${lseError.toExponential(1)}` +
    (result.seconds > 0 ? `; ${(result.seconds * 1e3).toFixed(2)} ms on the device` : "");
}

async function main() {
  for (let head = 0; head < 9; head++) element("head").add(new Option(String(head)));
  const heed = await Heed.open();
  const tensors = await fetchSafetensors("smollm2.safetensors");
  const update = () => show(heed, tensors).catch(fail);
  element("layer").onchange = element("head").onchange = update;
  element("time").onclick = async () => {
    element("timing").value = "...";
    const { rows, heedSeconds, naiveSeconds, difference } = await timeBoth(heed, 4096);
    element("timing").value = `${rows} rows: heed ${(heedSeconds * 1e3).toFixed(2)} ms, naive ` +
      `${(naiveSeconds * 1e3).toFixed(2)} ms, largest difference ${difference.toExponential(1)}`;
  };
  await update();
}

function fail(error) {
  element("result").value = `It does not work here: ${error.message}`;
}

main().catch(fail);
