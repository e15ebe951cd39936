// Prints its stack as V8 tells it, with Node's own functions below, and waits.
'use strict';
Error.stackTraceLimit = 100;
Error.prepareStackTrace = (_, sites) => sites.map((site) => [site.getFileName(), site.getLineNumber()]);
function rest() {
  console.log(`ready\n${JSON.stringify(new Error('here').stack)}`);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60000);
}
if (process.argv[2] === 'timer') setTimeout(() => rest(), 1);
else rest();
