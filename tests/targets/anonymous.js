// Functions without a name, two of them in one line; the inner one waits.
'use strict';
const cell = new Int32Array(new SharedArrayBuffer(4));
function rest() {
  console.log('ready');
  Atomics.wait(cell, 0, 0);
}
const all = [];
all.push(() => { [0].map(function () { rest(); }); });
all[0]();
