// Reads {url, options, runs: [{name: {shape, data}}]} as JSON from standard input, runs each, and prints answers as JSON. Numbers come as they
// are printed shortest, so that they are the same in every language. Run by tests/test_web.py.

import { connect } from "../dist/index.js";

let text = "";
for await (const part of process.stdin) text += part;
const { url, options = {}, runs, kind = "f32" } = JSON.parse(text);
const Numbers = kind === "f32" ? Float32Array : Float64Array;
const told = { answers: [], errors: [], progress: 0 };
try {
  const session = await connect(url, options);
  told.trust = session.trust;
  told.plan = session.plan.name;
  for (const inputs of runs) {
    const given = Object.fromEntries(
      Object.entries(inputs).map(([name, { shape, data }]) => [name, { shape, data: Numbers.from(data) }]),
    );
    try {
      const start = performance.now();
      const { outputs, outOfRange, trace } = await session.infer(given, () => { told.progress += 1; });
      const seconds = (performance.now() - start) / 1000;
      const plain = Object.fromEntries(Object.entries(outputs).map(([k, o]) => [k, { shape: o.shape, data: Array.from(o.data) }]));
      told.answers.push({ outputs: plain, outOfRange, seconds, trace });
    } catch (error) {
      told.errors.push({ kind: error.kind, message: error.message, open: session.isOpen });
    }
  }
  told.traffic = session.traffic;
  await session.close();
  told.open = session.isOpen;
} catch (error) {
  told.errors.push({ kind: error.kind ?? error.name, message: error.message });
}
process.stdout.write(JSON.stringify(told) + "\n");
